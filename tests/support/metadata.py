"""Metadata of objects as watches show it."""

from typing import Any

from tandem import names

OWNED = {names.LABEL_SERVICE: "svc"}


def meta(name: str, version: str = "1", **labels: str) -> dict[str, Any]:
    """Of an object in namespace `ns`."""
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}
