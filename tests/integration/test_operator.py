"""What a user sees of the operator: bring-up, edits, drift, deletion, and what it writes."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.core import Cluster

from .conftest import (
    RESYNC_SECONDS,
    SERVICE,
    AuditLog,
    Namespace,
    OperatorProcess,
    edited,
    new_namespace,
    quiet,
    wait_for,
)

Audit = Callable[[], AuditLog]


def test_bring_up_and_removal(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    assert namespace.conditions() == {
        "Ready": "True/ServersAnswer",
        "SpecAccepted": "True/Accepted",
        "ModelsReady": "True/FilesFound",
        "PairCompatible": "True/TokenizersEqual",
        "Available": "True/ServersAnswer",
    }
    status = namespace.get("sis", "svc")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    columns = namespace.run("get", "sis", "svc").splitlines()
    assert columns[0].split() == [
        *("NAME", "TYPE", "READY", "REASON", "REPLICAS", "ACCEPTANCE", "LENGTH", "SPEED-UP", "OPENAI", "AGE")
    ]
    assert "http://svc-triton." in columns[1]
    assert namespace.items("jobs") == [], "the preflight's Job is gone, its verdict is kept"
    namespace.wait_settled()
    # On a busy machine the servers may answer before anybody has looked at the roll-out.
    stages = namespace.events()
    assert sorted([*stages, *{"RollingOut"}.difference(stages)]) == [
        "PreflightRunning",
        "RollingOut",
        "ServersAnswer",
    ], "the stages of a start"

    namespace.run("delete", "sis", "svc")
    wait_for("all children to go", lambda: not namespace.children() and not namespace.server_pods())


def test_nothing_changes_nothing_is_written(
    cluster: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    # The API server writes quantities in its own way: "1" and 1Gi.
    resources = {"requests": {"cpu": 1, "memory": "1024Mi"}}
    template = {"spec": {"containers": [{"name": "triton", "resources": resources}]}}
    namespace.apply(podTemplate=template)
    namespace.wait_settled()
    listening = quiet(cluster, namespace)
    namespace.apply(podTemplate=template)  # the same again
    namespace.run("annotate", "sis", "svc", "note=1")  # an event, and nothing of ours
    time.sleep(3 * RESYNC_SECONDS)
    assert listening.operator_writes(namespace) == []
    asked = [e for e in listening.entries() if e.get("userAgent", "").startswith(("tandem/", "kopf"))]
    # Services of the tests before may still be going.
    here = [e for e in asked if e.get("objectRef", {}).get("namespace", namespace.name) == namespace.name]
    assert {e["verb"] for e in here} <= {"get", "list", "watch"}


def test_writes_until_ready_stay_within_a_budget(
    operator: OperatorProcess, namespace: Namespace, audit: Audit
) -> None:
    """ServiceAccount, two ConfigMaps, Service, Job and its deletion, PodDisruptionBudget, Deployment, and an Event
    for each of three stages: 11; the rest is status."""
    listening = audit()
    namespace.apply()
    namespace.wait_settled()
    writes = listening.operator_writes(namespace)
    status, events = ([w for w in writes if what in w] for what in ("/status/", "create events"))
    assert len(events) in (2, 3), "a roll-out may be over before anybody has looked"
    assert sorted(w.split("/")[0] for w in writes if w not in [*status, *events]) == [
        "delete jobs",
        "patch configmaps",
        "patch configmaps",
        "patch deployments",
        "patch jobs",
        "patch poddisruptionbudgets",
        "patch serviceaccounts",
        "patch services",
    ]
    assert len(status) <= 8, status


@pytest.fixture(scope="module")
def lasting_namespace(cluster: Cluster) -> Iterator[Namespace]:
    made = new_namespace(cluster)
    yield made
    made.run("delete", "sis", "--all")


@pytest.fixture
def served(operator: OperatorProcess, lasting_namespace: Namespace) -> Namespace:
    """A namespace with a service that is Ready, for tests that leave it as they find it."""
    lasting_namespace.apply()
    lasting_namespace.wait("Ready", "True")
    return lasting_namespace


DRIFT = [
    ("delete", "deployment", "svc-server"),
    ("delete", "pdb", "svc-server"),
    ("delete", "service", "svc-triton"),
    ("delete", "serviceaccount", "svc-server"),
]


@pytest.mark.parametrize(("verb", "kind", "name"), DRIFT)
def test_a_deleted_child_comes_back(served: Namespace, verb: str, kind: str, name: str) -> None:
    before = served.get(kind, name)["metadata"]["uid"]
    served.run(verb, kind, name)
    again = wait_for(f"{kind} {name} to come back", lambda: served.get(kind, name))
    assert again["metadata"]["uid"] != before
    served.wait("Ready", "True")


EDITS = [
    ("deployment", "svc-server", {"spec": {"progressDeadlineSeconds": 7}}, "a field of ours changed"),
    ("deployment", "svc-server", {"metadata": {"labels": {"serving.tandem.dev/service": None}}}, "our label removed"),
    ("deployment", "svc-server", {"metadata": {"ownerReferences": None}}, "its owner removed"),
    ("service", "svc-triton", {"spec": {"selector": {"serving.tandem.dev/component": "other"}}}, "traffic led away"),
    ("serviceaccount", "svc-server", {"automountServiceAccountToken": True}, "a token let in"),
    ("deployment", "svc-server", {"spec": {"minReadySeconds": 3}}, "a field beside ours"),
    ("deployment", "svc-server", {"spec": {"paused": True}}, "rollouts stopped"),
    ("service", "svc-triton", {"spec": {"externalIPs": ["192.0.2.1"]}}, "an address opened"),
]


@pytest.mark.parametrize(("kind", "name", "patch", "reason"), EDITS, ids=[edit[3] for edit in EDITS])
def test_a_child_edited_by_hand_is_repaired(
    served: Namespace, kind: str, name: str, patch: dict[str, object], reason: str
) -> None:
    pods = served.server_pods()

    def relevant() -> object:
        obj = served.get(kind, name)
        obj.pop("status", None)
        kept = {k: obj["metadata"].get(k) for k in ("labels", "ownerReferences")}
        return {**obj, "metadata": kept}

    before = relevant()
    served.run("patch", kind, name, "--type=merge", "-p", json.dumps(patch))
    wait_for(f"repair: {reason}", lambda: relevant() == before)
    served.wait("Ready", "True")
    assert served.server_pods() == pods, "no pod was disturbed"


def test_what_others_add_to_the_servers_pods_goes(operator: OperatorProcess, namespace: Namespace) -> None:
    """The pods are restarted twice, by the edit and by its end. What restarts them by an annotation stays."""
    namespace.apply()
    namespace.wait("Ready", "True")

    def template() -> dict[str, Any]:
        found: dict[str, Any] = namespace.get("deployment", "svc-server")["spec"]["template"]
        return found

    wanted = template()["spec"]
    sidecar = {"spec": {"template": {"spec": {"hostNetwork": True, "containers": [{"name": "proxy", "image": "p"}]}}}}
    for edit in (
        ["set", "env", "deployment/svc-server", "X=1"],
        ["patch", "deployment", "svc-server", "-p", json.dumps(sidecar)],
    ):
        namespace.run(*edit)
        wait_for(f"the end of {edit}", lambda: template()["spec"] == wanted)
    namespace.wait("Ready", "True")
    before = namespace.server_pods()
    namespace.run("rollout", "restart", "deployment/svc-server")
    wait_for("a new pod", lambda: namespace.server_pods().keys().isdisjoint(before))
    namespace.wait("Ready", "True")
    assert "kubectl.kubernetes.io/restartedAt" in template()["metadata"]["annotations"]
    assert "ChildrenKept" not in namespace.conditions()


STRATEGIES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rollout/properties/strategy/enum"


@pytest.fixture
def newer_definition(cluster: Cluster) -> Iterator[None]:
    """The definition has a value that the operator does not know."""
    crd, strategies = ("crd", "speculativeinferenceservices.serving.tandem.dev"), ["Surge", "Replace"]
    for known in ([*strategies, "Canary"], strategies):
        operation = {"op": "replace", "path": STRATEGIES, "value": known}
        cluster.kubectl.run("patch", *crd, "--type=json", "-p", json.dumps([operation]))
        if known != strategies:
            yield


def test_a_value_that_only_a_newer_operator_knows(
    operator: OperatorProcess, namespace: Namespace, newer_definition: None
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    pods = namespace.server_pods()
    newer = json.dumps(edited(SERVICE, rollout={"strategy": "Canary"}, replicas=2))
    wait_for("the definition to be served", lambda: namespace.works("apply", "-f", "-", stdin=newer))
    namespace.wait("Ready", "False/SpecNotUnderstood")
    assert "spec.rollout.strategy" in namespace.message("SpecAccepted")
    assert pods.items() <= namespace.server_pods().items()
    namespace.run("delete", "deployment,service,serviceaccount,pdb", "--all", "--wait")
    lost = {"Deployment/svc-server", "Service/svc-triton", "ServiceAccount/svc-server"}
    wait_for("the children", lambda: namespace.children() >= lost)
    wait_for("the servers", lambda: namespace.get("sis", "svc")["status"].get("readyReplicas") == 2)
    assert namespace.conditions()["Ready"] == "False/SpecNotUnderstood"
    assert namespace.events().count("SpecNotUnderstood") == 1
    namespace.apply()
    namespace.wait("Ready", "True")


def test_scaling_through_the_scale_subresource(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    first = namespace.server_pods()
    namespace.run("scale", "sis", "svc", "--replicas=3")
    wait_for("3 ready", lambda: namespace.get("sis", "svc")["status"].get("readyReplicas") == 3)
    assert first.items() <= namespace.server_pods().items()
    namespace.run("scale", "sis", "svc", "--replicas=0")
    namespace.wait("Ready", "True/ScaledToZero")


def test_an_edit_rolls_out_as_one_revision_and_back_again(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    first = namespace.get("sis", "svc")["status"]["currentRevision"]
    namespace.apply(speculation__maxDraftLen=2)
    namespace.wait("Ready", "True")
    second = namespace.get("sis", "svc")["status"]["currentRevision"]
    assert second != first
    namespace.apply()
    namespace.wait("Ready", "True")
    assert namespace.get("sis", "svc")["status"]["currentRevision"] == first


BAD = [
    ({"runtime__profile": "nope"}, "Stalled", "True/UnknownProfile", "write one of: reference"),
    (
        {"runtime__mode": "LLMAPI", "draft": None, "speculation": {"decodingType": "MTP"}},
        "Stalled",
        "True/DecodingTypeNotInProfile",
        "write speculation.decodingType: DraftTarget or",
    ),
    ({"runtime__image": "simulated/missing-model:1"}, "Stalled", "True/ModelNotFound", "write the uri"),
    ({"runtime__image": "simulated/no-verdict:1"}, "Stalled", "True/PreflightFailed", "delete it to try again"),
]


@pytest.mark.parametrize(("change", "condition", "wanted", "message"), BAD, ids=[row[2] for row in BAD])
def test_a_bad_spec_becomes_a_condition_and_leaves_pods_alone(
    served: Namespace, change: dict[str, Any], condition: str, wanted: str, message: str
) -> None:
    pods = served.server_pods()
    served.apply(**change)
    served.wait(condition, wanted)
    assert message in served.message(condition)
    assert served.conditions()["Available"] == "True/ServersAnswer"
    assert served.conditions()["Ready"].startswith("False")
    assert served.server_pods() == pods
    served.apply()
    served.wait("Ready", "True")
    assert served.server_pods() == pods, "going back needs no new pod"


CONTAINER: dict[str, Any] = {"name": "triton"}
DOUBLE = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
SLIPS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "a variable that is there twice",
        {"podTemplate__spec__containers": [{**CONTAINER, "env": DOUBLE}]},
        "Ready",
        "duplicate entries for key",
    ),
    (
        "a quantity that is none",
        {"podTemplate__spec__containers": [{**CONTAINER, "resources": {"requests": {"cpu": "two"}}}]},
        "Ready",
        "quantities must match",
    ),
    (
        "a misspelt peer",
        {"serving__access": {"from": [{"podSelectorr": {}}]}},
        "Ready",
        "podSelectorr: field not declared in schema",
    ),
    (
        "a misspelt behaviour",
        {"autoscaling": {"maxReplicas": 2, "behavior": {"scaleDwn": {"selectPolicy": "Max"}}}},
        "ScalingActive",
        "scaleDwn: field not declared in schema",
    ),
]


@pytest.mark.parametrize(("slip", "change", "condition", "message"), SLIPS, ids=[row[0] for row in SLIPS])
def test_what_the_api_server_cannot_read_is_said(
    served: Namespace, slip: str, change: dict[str, Any], condition: str, message: str
) -> None:
    """The fields of Kubernetes' own, which our schema does not know: applied, they are answered with 500."""
    pods = served.server_pods()
    served.apply(**change)
    served.wait(condition, "False/ApplyRefused")
    assert message in served.message(condition), slip
    assert served.server_pods() == pods
    served.apply()
    served.wait("Ready", "True")
    assert served.server_pods() == pods


def test_a_bad_new_service_makes_no_pod(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(runtime__image="simulated/missing-model:1")
    namespace.wait("Stalled", "True/ModelNotFound")
    time.sleep(3)
    assert namespace.server_pods() == {}
    assert namespace.items("deployments") == []


def test_a_name_that_is_taken_is_left_to_its_owner(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.run("create", "service", "clusterip", "svc-triton", "--tcp=80")
    theirs = namespace.get("service", "svc-triton")
    namespace.apply()
    namespace.wait("Stalled", "True/ApplyRefused")
    assert "delete or rename it" in namespace.message("Stalled")
    assert namespace.get("service", "svc-triton") == theirs
    namespace.run("delete", "service", "svc-triton")
    namespace.wait("Ready", "True")


def test_a_service_recreated_under_its_name_gets_children_of_its_own(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    old = namespace.get("sis", "svc")["metadata"]["uid"]
    namespace.run("delete", "sis", "svc", "--cascade=orphan")
    namespace.run("delete", "deploy,sa,cm,svc,pdb", "-l", "app.kubernetes.io/managed-by=tandem")
    namespace.apply()
    namespace.wait("Ready", "True")
    new = namespace.get("sis", "svc")["metadata"]["uid"]
    owners = {d["metadata"]["ownerReferences"][0]["uid"] for d in namespace.items("deployments")}
    assert owners == {new} != {old}


def test_a_service_made_anew_over_the_children_that_it_left_takes_them_up(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    """As a Deployment does with ReplicaSets: how one replaces the definition, say, without a pause."""
    namespace.apply()
    namespace.wait_settled()
    pods = namespace.server_pods()
    namespace.run("delete", "sis", "svc", "--cascade=orphan")
    wait_for("the children to be let go", lambda: "ownerReferences" not in owners_of(namespace, "svc-server"))
    namespace.apply()
    namespace.wait("Ready", "True")
    assert namespace.server_pods() == pods
    new = namespace.get("sis", "svc")["metadata"]["uid"]
    assert owners_of(namespace, "svc-server")["ownerReferences"][0]["uid"] == new


def owners_of(namespace: Namespace, deployment: str) -> dict[str, Any]:
    metadata: dict[str, Any] = namespace.get("deployment", deployment)["metadata"]
    return metadata


def test_rendered_names_fit_at_the_longest_name(operator: OperatorProcess, namespace: Namespace) -> None:
    raw = edited(SERVICE)
    raw["metadata"]["name"] = "a" * 40
    namespace.run("apply", "-f", "-", stdin=json.dumps(raw))
    namespace.wait("Ready", "True", name="a" * 40)


def test_a_job_whose_pods_a_quota_refuses_says_so(operator: OperatorProcess, namespace: Namespace) -> None:
    """In its Events alone, which the operator reads once the Job has waited."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpus"}}
    namespace.run("create", "-f", "-", stdin=json.dumps({**quota, "spec": {"hard": {"limits.cpu": "0"}}}))
    namespace.apply()
    namespace.wait("PodsHealthy", "False/PodNotMade")
    # Until the quota's controller has counted the pods, the refusal has another text; the Job tries again.
    for condition in ("PodsHealthy", "Ready"):
        wait_for(condition, lambda kind=condition: "exceeded quota: cpus" in namespace.message(kind))  # type: ignore[misc]
    wait_for("the Event", lambda: "PodNotMade" in namespace.events())
