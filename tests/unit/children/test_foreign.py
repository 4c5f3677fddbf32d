"""What others write into children: what stays, and what goes."""

import copy
from typing import Any

import pytest

from support.world import applied
from tandem import names
from tandem.children.foreign import as_wanted, described, foreign, taken_over

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "triton", "image": "i"}], "terminationGracePeriodSeconds": 5},
}
WANTED: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"ours": "1"}},
    "spec": {"replicas": 2, "template": TEMPLATE},
}
CONTAINER = 'k:{"name":"triton"}'
OWNED = {
    "f:metadata": {"f:labels": {"f:ours": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {
                "f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}},
                "f:terminationGracePeriodSeconds": {},
            },
        },
    },
}


def live(*entries: dict[str, Any], kind: str = "Deployment") -> dict[str, Any]:
    """As applied, and with what others own."""
    obj = applied({**WANTED, "kind": kind})
    obj["metadata"]["managedFields"][0]["fieldsV1"] = copy.deepcopy(OWNED)
    obj["metadata"]["managedFields"] += entries
    return obj


def by(manager: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def of_pod(fields: dict[str, Any]) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:spec": fields}}}


ITEM: dict[str, Any] = {".": {}, "f:name": {}, "f:value": {}}
VARIABLE = of_pod({"f:containers": {CONTAINER: {"f:env": {".": {}, 'k:{"name":"X"}': ITEM}}}})
SIDECAR = of_pod({"f:containers": {'k:{"name":"proxy"}': {".": {}, "f:name": {}, "f:image": {}}}})
RESTARTED: dict[str, Any] = {
    "f:spec": {"f:template": {"f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/at": {}}}}}
}
REVISION: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}}}}
AS_OURS = of_pod({"f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}})
DATA: dict[str, Any] = {"f:data": {"f:x": {}}}

ROWS: list[tuple[str, str, dict[str, Any], str]] = [
    # who, kind, what, which of it is foreign
    ("kubectl set env", "Deployment", VARIABLE, "spec.template.spec.containers[triton].env[X]"),
    ("a sidecar", "Deployment", SIDECAR, "spec.template.spec.containers[proxy]"),
    ("where pods run", "Deployment", of_pod({"f:nodeSelector": {}}), "spec.template.spec.nodeSelector"),
    ("the host's network", "Deployment", of_pod({"f:hostNetwork": {}}), "spec.template.spec.hostNetwork"),
    ("a stopped rollout", "Deployment", {"f:spec": {"f:paused": {}}}, "spec.paused"),
    ("kubectl rollout restart", "Deployment", RESTARTED, ""),
    ("the Deployment's controller", "Deployment", REVISION, ""),
    ("who applies what we do", "Deployment", AS_OURS, ""),
    ("an open port", "Service", {"f:spec": {"f:externalIPs": {}}}, "spec.externalIPs"),
    ("a rule", "NetworkPolicy", {"f:spec": {"f:egress": {}}}, "spec.egress"),
    ("a budget", "PodDisruptionBudget", {"f:spec": {"f:minAvailable": {}}}, "spec.minAvailable"),
    (
        "a behaviour",
        "HorizontalPodAutoscaler",
        {"f:spec": {"f:behavior": {"f:scaleUp": {}}}},
        "spec.behavior.scaleUp",
    ),
    ("a file", "ConfigMap", DATA, "data.x"),
    ("OpenShift's Secrets", "ServiceAccount", {"f:secrets": {'k:{"name":"s"}': {}}, "f:imagePullSecrets": {}}, ""),
    ("KEDA, which stores the whole", "ScaledObject", {"f:spec": {"f:advanced": {"f:scalingModifiers": {}}}}, ""),
    ("a gateway likewise", "HTTPRoute", {"f:spec": {"f:rules": {}}}, ""),
    ("a label", "Service", {"f:metadata": {"f:labels": {"f:team": {}}}}, ""),
]


@pytest.mark.parametrize(("who", "kind", "fields", "wanted"), ROWS, ids=[f"{row[1]}: {row[0]}" for row in ROWS])
def test_what_others_have_no_say_in(who: str, kind: str, fields: dict[str, Any], wanted: str) -> None:
    found = live(by(who, fields), by("controller", {"f:status": {}, **fields}, subresource="status"), kind=kind)
    assert described(found) == (f"{who} wrote {wanted}" if wanted else "")
    mine, *_ = taken_over(found)
    before = found["metadata"]["managedFields"][0]
    assert (mine == before) is not wanted


def test_a_group_is_a_workload_too() -> None:
    group: dict[str, Any] = {
        "f:leaderWorkerTemplate": {"f:workerTemplate": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:hostIPC": {}}}}
    }
    found = live(by("me", {"f:spec": group}), kind="LeaderWorkerSet")
    assert described(found) == "me wrote spec.leaderWorkerTemplate.workerTemplate.spec.hostIPC"


def test_who_scales_the_workload_wrote_its_replicas() -> None:
    """They are the service's to say."""
    found = live(by("hpa", {"f:spec": {"f:replicas": {}}}, subresource="scale"))
    del found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]
    assert described(found) == "hpa wrote spec.replicas"


def test_what_is_taken_over_is_ours_and_nobody_elses() -> None:
    both = {"f:spec": {**VARIABLE["f:spec"], "f:paused": {}}, **REVISION}
    status = by("kube-controller-manager", {"f:status": {}}, subresource="status")
    found = live(by("one", both), status, by("two", {"f:spec": {"f:paused": {}}}))
    mine, one, left = taken_over(found)
    assert (one, left) == (by("one", REVISION), status)
    assert mine["manager"] == names.FIELD_MANAGER
    container = mine["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"][CONTAINER]
    assert container == {".": {}, "f:name": {}, "f:image": {}, "f:env": {".": {}, 'k:{"name":"X"}': ITEM}}
    assert mine["fieldsV1"]["f:spec"]["f:paused"] == {}
    found["metadata"]["managedFields"] = [mine, one, left]
    assert foreign(found) == {}
    assert not as_wanted(WANTED, found), "it is to be applied, which removes it"


def test_it_names_a_few() -> None:
    fields: dict[str, Any] = {f"f:{letter}": {} for letter in "abcde"}
    assert described(live(by("me", {"f:spec": fields}))) == "me wrote spec.a, spec.b, spec.c and 2 more"
