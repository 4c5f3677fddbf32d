"""Every example, on the real API server and brought up by the operator on simulated nodes with GPUs.

The simulator completes the Jobs: what they would find is theirs to say elsewhere. What is shown is that each
service's children are admitted, scheduled where their GPUs are, and reported truthfully.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.core import Cluster

from .conftest import Namespace, OperatorProcess, offer_volume, wait_for
from .groups import leaders

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
DEVICES = {"nvidia.com/gpu": "64", "nvidia.com/mig-3g.40gb": "64"}
# Nobody here hands out devices by claims: the engine's build waits for its GPU, and the service says so.
TASKS = ("ModelsReady", "EnginesReady", "PairCompatible")
WAITS = "bls-draft-target-dra"
GROUPS = ("llmapi-mtp-two-nodes", "vllm-two-nodes")
NO_IMAGE = "vllm-cpu"
"""Its profile gets one with the chart's values."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_admitted(untouched: Namespace, path: Path) -> None:
    untouched.run("apply", "--dry-run=server", "-f", str(path))


@pytest.fixture
def gpus(cluster: Cluster) -> Iterator[None]:
    """GPUs on one node; what product they are, the test says. Other tests have none."""

    def offer(devices: Mapping[str, str | None]) -> None:
        patch = json.dumps({"status": {"capacity": devices, "allocatable": devices}})
        cluster.kubectl.run("patch", "node", "simulated-0", "--subresource=status", "--type=merge", "-p", patch)

    offer(DEVICES)
    yield
    offer(dict.fromkeys(DEVICES))
    cluster.kubectl.run("label", "node", "simulated-0", "nvidia.com/gpu.product-")


def service_of(path: Path) -> dict[str, Any]:
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    (service,) = (each for each in documents if each["kind"] == "SpeculativeInferenceService")
    return dict(service)


def offer_claim(namespace: Namespace, uri: str) -> None:
    """The user's own claim that `pvc://` names, bound to a volume."""
    name = uri.removeprefix("pvc://").split("/")[0]
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "500Gi"}}, "storageClassName": ""}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    namespace.run("apply", "-f", "-", stdin=json.dumps(claim))
    offer_volume(namespace, name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_brought_up(operator: OperatorProcess, namespace: Namespace, gpus: None, path: Path) -> None:
    service = service_of(path)
    spec, name = service["spec"], service["metadata"]["name"]
    offer_volume(namespace)
    for uri in {spec[role]["model"]["uri"] for role in ("target", "draft") if role in spec}:
        if uri.startswith("pvc://"):
            offer_claim(namespace, uri)
    for product in spec.get("placement", {}).get("gpu", {}).get("product", [])[:1]:
        namespace.run("label", "node", "simulated-0", f"nvidia.com/gpu.product={product}", "--overwrite")
    namespace.run("apply", "-f", str(path))
    if path.stem == WAITS:
        namespace.wait("Ready", "False/BuildRunning", name=name)
        wait_for(
            "what it waits for", lambda: "waits for its resourceClaims" in namespace.message("EnginesReady", name)
        )
        return
    if path.stem == NO_IMAGE:
        namespace.wait("Ready", "False/NoImage", name=name)
        return
    if path.stem in GROUPS:
        wait_for("the LeaderWorkerSet", lambda: namespace.items("leaderworkersets"), log=operator.log)
        leaders(namespace, 1)
    namespace.wait("Ready", "True/ServersAnswer", name=name)
    conditions = namespace.conditions(name)
    tasks = {
        kind: conditions[kind] for kind in conditions if kind in ("ModelsReady", "EnginesReady", "PairCompatible")
    }
    assert {found.split("/")[0] for found in tasks.values()} == {"True"}
    assert ("PairCompatible" in tasks) is ("draft" in spec)
    assert conditions["SpecAccepted"].startswith("True/")
    wait_for("no Job to be left", lambda: namespace.items("jobs") == [])
