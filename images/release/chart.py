"""The chart of a release: that of the repository with the release's images among its defaults; and its manifests."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.errors import BuildError
from release import tools

CHART = Path(__file__).resolve().parents[2] / "charts" / "tandem"
NAME = "tandem"
NAMESPACE = "tandem-system"
PROFILES = {"reference": "reference", "reference-torch": "torch", "vllm-cpu": "vllm-cpu"}
"""Images that are a shipped profile's, and that profile."""


@dataclass(frozen=True)
class Images:
    """The images of a release by name: where they are published, and their digests."""

    registry: str
    """Host and path, such as registry.example.com/tandem."""
    digests: Mapping[str, str]

    def ref(self, name: str) -> str:
        """Return the reference of an image, which no later push changes."""
        return f"{self.registry}/{name}@{self.digests[name]}"

    def values(self) -> dict[str, Any]:
        """Return the values that name these images."""
        return {
            "image": {"repository": f"{self.registry}/operator", "digest": self.digests["operator"]},
            "servingImage": self.ref("serving"),
            "fetcherImage": self.ref("fetcher"),
            "profileImages": {PROFILES[name]: self.ref(name) for name in self.digests if name in PROFILES},
        }


def package(images: Images, version: str, folder: Path, chart: Path = CHART) -> Path:
    """Write the chart's archive into ``folder`` and return its path; raises BuildError."""
    copy = folder / "staged" / NAME
    shutil.copytree(chart, copy)
    values = copy / "values.yaml"
    values.write_text(with_defaults(values.read_text(encoding="utf-8"), images.values()), encoding="utf-8")
    tools.helm("package", copy, "--version", version, "--app-version", version, "--destination", folder)
    shutil.rmtree(copy.parent)
    return folder / f"{NAME}-{version}.tgz"


def with_defaults(text: str, defaults: Mapping[str, Any]) -> str:
    """Return the text of a values file with other defaults, its comments kept.

    Values are replaced by the lines that set them; raises BuildError where the result has other values.
    """
    wanted = yaml.safe_load(text)
    image = defaults["image"]
    lines = {
        r"  repository: .*": f"  repository: {image['repository']}",
        r"  digest: .*": f"  digest: {image['digest']}",
        **{rf"{key}: .*": f"{key}: {_flow(value)}" for key, value in defaults.items() if key != "image"},
    }
    for pattern, line in lines.items():
        # No reference, digest or name has a backslash, which would mean something in a replacement.
        text = re.sub(rf"^{pattern}$", line, text, count=1, flags=re.MULTILINE)
    if yaml.safe_load(text) != {**wanted, **defaults, "image": {**wanted["image"], **image}}:
        raise BuildError("charts/tandem/values.yaml does not set each image on a line of its own: see release.chart")
    return text


def manifests(archive: Path) -> str:
    """Return what the chart makes of its defaults for plain kubectl, its namespace first; raises BuildError."""
    namespace = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return namespace + tools.helm("template", NAME, archive, "--namespace", NAMESPACE)


def kustomization(version: str) -> str:
    """Return the Kustomize base over install.yaml."""
    base = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "metadata": {"name": NAME, "annotations": {"app.kubernetes.io/version": version}},
        "resources": ["install.yaml"],
    }
    return yaml.safe_dump(base, sort_keys=False)


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).splitlines()[0]
