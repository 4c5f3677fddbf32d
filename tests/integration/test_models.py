"""Models from elsewhere: downloaded by Jobs into a claim that outlives the services, on simulated nodes."""

import json
from typing import Any

from .conftest import Namespace, OperatorProcess, offer_volume, wait_for

HUB: dict[str, Any] = {
    "target__model": {"uri": "hf://org/target", "revision": "main", "secretName": "hub"},
    "draft__model": {"uri": "hf://org/draft"},
}


def test_downloads_then_preflight_then_servers(operator: OperatorProcess, namespace: Namespace) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    assert namespace.conditions()["ModelsReady"] == "True/FilesFound"
    assert namespace.items("jobs") == [], "what they found is kept, they are not"
    results = [c["metadata"]["name"] for c in namespace.items("cm") if "-fetch-" in c["metadata"]["name"]]
    assert len(results) == 2
    (revision,) = [c for c in namespace.items("cm") if "launch.json" in c.get("data", {})]
    checks = json.loads(revision["data"]["launch.json"])["preflight"]
    assert checks["target"]["path"] == "/cache/models/0123456789abcdef"


def test_the_claim_outlives_its_services_and_is_shared(operator: OperatorProcess, namespace: Namespace) -> None:
    offer_volume(namespace)
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    (claim,) = namespace.items("pvc")
    assert "ownerReferences" not in claim["metadata"]
    namespace.run("delete", "sis", "svc")
    wait_for("all children to go", lambda: not namespace.children() and not namespace.server_pods())
    namespace.apply(**HUB)
    namespace.wait("Ready", "True")
    (again,) = namespace.items("pvc")
    assert again["metadata"]["uid"] == claim["metadata"]["uid"]


def test_without_a_volume_the_user_is_told_what_waits(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**HUB)
    namespace.wait("ModelsReady", "Unknown/FetchRunning")
    wait_for(
        "the scheduler's reason in the condition",
        lambda: "PersistentVolumeClaim" in namespace.message("ModelsReady"),
    )


def test_a_claim_of_one_node_is_refused_for_two_replicas(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(**HUB, storage={"cache": {"accessModes": ["ReadWriteOnce"]}}, replicas=2)
    namespace.wait("SpecAccepted", "False/CacheNotShareable")
    assert namespace.items("pvc") == []
