"""The definitions of Gateway API that tests install, and what services ask of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.core import Cluster

from .conftest import wait_established

CRDS = Path(__file__).parent / "gateway_crds.yaml"
NAMES = ("httproutes.gateway.networking.k8s.io", "inferencepools.inference.networking.k8s.io")
ROUTE = {"parentRefs": [{"name": "public"}], "hostnames": ["llm.example.com"], "path": "/svc"}
POOL = {"endpointPickerRef": {"name": "picker"}}


@contextmanager
def gateway_definitions(cluster: Cluster) -> Iterator[None]:
    """They are there within it."""
    cluster.kubectl.run("apply", "--server-side", "-f", str(CRDS))
    try:
        for name in NAMES:
            wait_established(cluster, name)
        yield
    finally:
        cluster.kubectl.run("delete", "crd", *NAMES, "--ignore-not-found")
