"""The operator's pod."""

from typing import Any

from .conftest import Site

SYSTEM = "tandem-system"
OPERATOR = "app.kubernetes.io/component=operator"


def operator_pod(site: Site) -> dict[str, Any]:
    (pod,) = site.items("pods", OPERATOR, SYSTEM)
    return pod
