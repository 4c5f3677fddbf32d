"""`tandem doctor`: each check over objects that were read; and the command, through a fake kubectl."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tandem
from support.services import QUICKSTART, parse
from tandem.api.crd import crd
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.cli import app
from tandem.cli.doctor import cluster, service
from tandem.cli.doctor.cluster import DEFINITION, GROUPS, KEDA, RIGHTS
from tandem.cli.doctor.facts import CheckFinding, CheckState, ClusterFacts, One, Unread
from tandem.cli.doctor.references import named
from tandem.cli.doctor.report import examine, failed, verdict
from tandem.settings import load_settings

OK, WARN, FAIL = CheckState.OK, CheckState.WARN, CheckState.FAIL
FORBIDDEN = Unread("Forbidden: jane may not")
ESTABLISHED = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}


def only(findings: Any) -> CheckFinding:
    (finding,) = findings
    return finding  # type: ignore[no-any-return]


def version(text: str) -> Object:
    major, minor = text.removeprefix("v").split(".")[:2]
    return {"serverVersion": {"major": major, "minor": minor, "gitVersion": text}}


def definition(change: str = "") -> Object:
    """The CRD, without a field that this command knows, or with one that it does not."""
    made = copy.deepcopy(crd())
    spec = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    if change == "older":
        del spec["jobs"]
    if change == "newer":
        spec["telepathy"] = {"type": "string"}
    return {**made, **ESTABLISHED}


def deployment(available: int = 1, release: str = tandem.__version__) -> Object:
    meta = {"namespace": "tandem-system", "name": "tandem-operator", "labels": {"app.kubernetes.io/version": release}}
    conditions = [{"type": "Available", "status": "False", "message": "no quorum"}]
    return {"metadata": meta, "status": {"availableReplicas": available, "conditions": conditions}}


def api_service(status: str) -> Object:
    conditions = [{"type": "Available", "status": status, "message": "connection refused"}]
    spec = {"service": {"namespace": "tandem-system", "name": "tandem-metrics"}}
    return {"spec": spec, "status": {"conditions": conditions}}


def storage_class(name: str, driver: str, default: bool = False) -> Object:
    marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if default else {}
    return {"metadata": {"name": name, **marks}, "provisioner": driver}


def node(name: str = "gpu-1", number: int = 8, *taints: str, **labels: str) -> Object:
    marks = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", **labels}
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    allocatable = {"cpu": "8", **({"nvidia.com/gpu": str(number)} if number else {})}
    return {
        "metadata": {"name": name, "labels": marks if number else {}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def quota(hard: str, used: str, name: str = "requests.nvidia.com/gpu") -> Object:
    return {"metadata": {"name": "team"}, "status": {"hard": {name: hard}, "used": {name: used}}}


NFS, DISK = storage_class("shared", "nfs.csi.k8s.io"), storage_class("disk", "ebs.csi.aws.com", True)
CLUSTER: list[tuple[str, Any, dict[str, Any], CheckState, str]] = [
    # reason, check, facts, state, part of the message
    ("new enough", cluster.kubernetes, {"version": version("v1.36.2")}, OK, "v1.36.2"),
    ("a provider's minor", cluster.kubernetes, {"version": version("v1.33+.2-gke")}, OK, "v1.33"),
    ("too old", cluster.kubernetes, {"version": version("v1.29.9")}, FAIL, "v1.29.9 is older than 1.30"),
    ("another kind of version", cluster.kubernetes, {"version": {}}, WARN, "not understood"),
    ("the CRD", cluster.definition, {"definitions": {DEFINITION: definition()}}, OK, tandem.__version__),
    ("no CRD", cluster.definition, {"definitions": {DEFINITION: None}}, FAIL, "install Tandem's chart"),
    ("an older CRD", cluster.definition, {"definitions": {DEFINITION: definition("older")}}, WARN, "lacks spec.jobs"),
    ("a newer CRD", cluster.definition, {"definitions": {DEFINITION: definition("newer")}}, WARN, "spec.telepathy"),
    ("not established", cluster.definition, {"definitions": {DEFINITION: crd()}}, FAIL, "not Established"),
    ("CRDs unread", cluster.definition, {"definitions": {DEFINITION: FORBIDDEN}}, WARN, "jane may not"),
    ("an operator", cluster.operator, {"operators": [deployment()]}, OK, "1 pod available"),
    ("no operator", cluster.operator, {"operators": []}, FAIL, "install Tandem's chart"),
    ("it does not run", cluster.operator, {"operators": [deployment(0)]}, FAIL, "no quorum"),
    ("of another version", cluster.operator, {"operators": [deployment(1, "9.9")]}, WARN, "is 9.9, this command"),
    ("operators unread", cluster.operator, {"operators": FORBIDDEN}, WARN, "jane may not"),
    ("metrics", cluster.metrics_api, {"metrics_api": api_service("True")}, OK, "tandem-system/tandem-metrics"),
    ("no metrics", cluster.metrics_api, {}, WARN, "metricsServer.register"),
    ("silent metrics", cluster.metrics_api, {"metrics_api": api_service("False")}, FAIL, "connection refused"),
    ("metrics unread", cluster.metrics_api, {"metrics_api": FORBIDDEN}, WARN, "jane may not"),
    (
        "a shared default",
        cluster.storage,
        {"storage_classes": [storage_class("a", "cephfs", True)]},
        OK,
        "default is a",
    ),
    ("shared, not the default", cluster.storage, {"storage_classes": [NFS, DISK]}, OK, "storageClassName"),
    ("disks alone", cluster.storage, {"storage_classes": [DISK]}, WARN, "ReadWriteMany"),
    ("no class", cluster.storage, {"storage_classes": []}, WARN, "claimName"),
    ("classes unread", cluster.storage, {"storage_classes": FORBIDDEN}, WARN, "jane may not"),
    ("no GPUs", cluster.gpus, {"nodes": [node(number=0)]}, WARN, "GPU operator"),
    ("GPUs", cluster.gpus, {"nodes": [node(), node("b")]}, OK, "16 nvidia.com/gpu on 2 nodes"),
    ("nodes unread", cluster.gpus, {"nodes": FORBIDDEN}, WARN, "jane may not"),
    ("no quota", cluster.quotas, {}, OK, "none"),
    ("room", cluster.quotas, {"quotas": [quota("8", "4")]}, OK, "1 ResourceQuota"),
    ("used up", cluster.quotas, {"quotas": [quota("8", "8")]}, WARN, "requests.nvidia.com/gpu of team (8 of 8)"),
    ("in other units", cluster.quotas, {"quotas": [quota("1", "1500m", "cpu")]}, WARN, "cpu of team (1500m of 1)"),
    ("memory", cluster.quotas, {"quotas": [quota("2Gi", "1024Mi", "memory")]}, OK, "1 ResourceQuota"),
    ("quotas unread", cluster.quotas, {"quotas": FORBIDDEN}, WARN, "jane may not"),
    ("all rights", cluster.permissions, {"rights": dict.fromkeys(RIGHTS, True)}, OK, "all that"),
    (
        "no reading",
        cluster.permissions,
        {"rights": {**dict.fromkeys(RIGHTS, True), RIGHTS[0]: False}},
        FAIL,
        "get speculativeinferenceservices.serving.tandem.dev",
    ),
    ("no logs", cluster.permissions, {"rights": {RIGHTS[5]: False}}, WARN, "get pods/log, which is for tandem logs"),
    (
        "rights unread",
        cluster.permissions,
        {"rights": {RIGHTS[5]: None}},
        WARN,
        "not known whether you may get pods/log",
    ),
]


@pytest.mark.parametrize(("reason", "check", "facts", "state", "part"), CLUSTER, ids=[row[0] for row in CLUSTER])
def test_the_cluster(reason: str, check: Any, facts: dict[str, Any], state: CheckState, part: str) -> None:
    found = only(check(ClusterFacts(**facts)))
    assert found.state is state, found
    assert part in found.message


def test_gpus_without_labels_cannot_be_chosen_by_product() -> None:
    bare = node()
    del bare["metadata"]["labels"]["nvidia.com/gpu.product"]
    first, second = cluster.gpus(
        ClusterFacts(nodes=[bare, node("b", 8, **{"nvidia.com/cuda.driver-version.full": "570.1"})])
    )
    assert (first.state, "driver 570.1" in first.message) == (OK, True)
    assert (second.state, second.message.startswith("gpu-1 has no label")) == (WARN, True)


def test_what_only_some_services_need_is_no_fault() -> None:
    found = [*cluster.optional(ClusterFacts(definitions={KEDA: None, GROUPS: definition()}))]
    assert [(each.check, each.state) for each in found] == [
        ("KEDA", OK),
        ("Prometheus Operator", OK),
        ("LeaderWorkerSet", OK),
    ]
    assert "not installed; only for services with autoscaling.source KEDA" in found[0].message
    assert found[2].message == "installed"


HUB = {"target__model__uri": "hf://org/target", "draft__model__uri": "hf://org/draft"}
GPUS = {"runtime__profile": "trtllm-26.07", "target__tensorParallelSize": 4, **HUB}
H200 = {"placement": {"gpu": {"product": ["NVIDIA-H200"]}}}


def facts(changes: dict[str, Any], **found: Any) -> ClusterFacts:
    """Of the quickstart with changes."""
    made: SpeculativeInferenceService = parse(QUICKSTART, **changes)
    return ClusterFacts(service=made, profile=load_settings().profile(made.spec.runtime.profile), **found)


def claim(*modes: str, phase: str = "Bound") -> Object:
    return {"spec": {"accessModes": [*modes]}, "status": {"phase": phase}}


def told(kind: str, status: str, reason: str = "R") -> ClusterFacts:
    """Of the quickstart, whose status has a condition."""
    made = parse(QUICKSTART)
    condition = {"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "now"}
    status_of_it = type(made.status).model_validate({"conditions": [condition]})
    return ClusterFacts(service=made.model_copy(update={"status": status_of_it}))


GOES = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
SERVICE: list[tuple[str, Any, ClusterFacts, CheckState, str]] = [
    ("RWX", service.claim, facts(HUB, claim=claim("ReadWriteMany")), OK, "Bound, ReadWriteMany"),
    ("one node", service.claim, facts(HUB, claim=claim("ReadWriteOnce")), OK, "ReadWriteOnce"),
    (
        "several replicas on one node's volume",
        service.claim,
        facts({**HUB, "replicas": 2}, claim=claim("ReadWriteOnce")),
        FAIL,
        "there may be 2 replicas",
    ),
    ("no volume yet", service.claim, facts(HUB, claim=claim("ReadWriteMany", phase="Pending")), FAIL, "is Pending"),
    ("it goes", service.claim, facts(HUB, claim={**claim("ReadWriteMany"), **GOES}), FAIL, "is being deleted"),
    ("a lost volume", service.claim, facts(HUB, claim=claim("ReadWriteMany", phase="Lost")), FAIL, "lost its volume"),
    ("made later", service.claim, facts(HUB), OK, "made by the operator"),
    ("named, not there", service.claim, facts({**HUB, "storage__cache__claimName": "models"}), FAIL, "models"),
    ("claim unread", service.claim, facts(HUB, claim=FORBIDDEN), WARN, "jane may not"),
    ("GPUs", service.gpus, facts(GPUS, nodes=[node()]), OK, "4 nvidia.com/gpu a node: 1 node"),
    ("too few a node", service.gpus, facts(GPUS, nodes=[node(number=2)]), FAIL, "offer so many"),
    ("another product", service.gpus, facts({**GPUS, **H200}, nodes=[node()]), FAIL, "placement.gpu.product"),
    (
        "another pool",
        service.gpus,
        facts({**GPUS, "placement__nodeSelector": {"pool": "a"}}, nodes=[node()]),
        FAIL,
        "nodeSelector",
    ),
    ("a taint", service.gpus, facts(GPUS, nodes=[node("a", 8, "team")]), FAIL, "taints"),
    ("the GPUs' own taint", service.gpus, facts(GPUS, nodes=[node("a", 8, "nvidia.com/gpu")]), OK, "1 node"),
    (
        "a tolerated taint",
        service.gpus,
        facts({**GPUS, "placement__tolerations": [{"operator": "Exists"}]}, nodes=[node("a", 8, "team")]),
        OK,
        "1 node",
    ),
    ("no room", service.quota, facts(GPUS, quotas=[quota("8", "5")]), FAIL, "leaves 3 requests.nvidia.com/gpu"),
    ("its state", service.state, facts(HUB), WARN, "the operator has not acted on this spec yet"),
    (
        "killed again and again",
        service.conditions,
        told("PodsHealthy", "False", "ContainerFails"),
        FAIL,
        "ContainerFails",
    ),
    ("an engine fails", service.conditions, told("EngineHealthy", "False"), FAIL, "R: m"),
    ("it scales no more", service.conditions, told("ScalingActive", "False"), WARN, "R: m"),
    ("speculation harms", service.conditions, told("SpeculationBeneficial", "False"), WARN, "R: m"),
    ("an unknown profile", service.profile, facts({"runtime__profile": "ours"}), WARN, "give --settings"),
    (
        "no KEDA",
        service.needed,
        facts({"autoscaling": {"maxReplicas": 2, "source": "KEDA"}}, definitions={KEDA: None}),
        FAIL,
        "https://keda.sh",
    ),
]


@pytest.mark.parametrize(("reason", "check", "given", "state", "part"), SERVICE, ids=[row[0] for row in SERVICE])
def test_a_service(reason: str, check: Any, given: ClusterFacts, state: CheckState, part: str) -> None:
    found = only(check(given))
    assert found.state is state, found
    assert part in found.message


def test_a_class_that_is_not_there_is_a_fault() -> None:
    made = facts({**HUB, "storage__cache__storageClassName": "fast"}, storage_classes=[NFS])
    first, second = service.claim(made)
    assert (first.state, second.state, "there is shared" in second.message) == (OK, FAIL, True)


@pytest.mark.parametrize(
    ("kind", "status"), [("PodsHealthy", "True"), ("Ready", "False"), ("Available", "True"), ("OfTomorrow", "False")]
)
def test_conditions_that_are_no_problem_of_their_own_are_left_out(kind: str, status: str) -> None:
    assert [*service.conditions(told(kind, status))] == []


@pytest.mark.parametrize(
    ("check", "changes"),
    [(service.claim, {}), (service.gpus, {}), (service.quota, {})],
    ids=["no downloads", "a CPU", "no GPUs"],
)
def test_what_a_service_does_not_use_is_not_checked(check: Any, changes: dict[str, Any]) -> None:
    assert [*check(facts(changes, nodes=[], quotas=[quota("0", "0")]))] == []


NAMES = {
    **HUB,
    "target__model__secretName": "hf-token",
    "serving__openAI": {"apiKeySecret": "keys", "tlsSecret": "tls"},
    "jobs": {"caConfigMap": "ca", "envFrom": [{"secretRef": {"name": "proxy"}}]},
    "podTemplate": {
        "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [
                {
                    "name": "triton",
                    "env": [
                        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}},
                        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "b", "optional": True}}},
                    ],
                }
            ],
            "volumes": [
                {"name": "v", "secret": {"secretName": "files"}},
                {"name": "w", "configMap": {"name": "settings"}},
            ],
        }
    },
}


def test_all_that_a_service_names() -> None:
    found = {(each.kind, each.name, each.key, each.type) for each in named(parse(QUICKSTART, **NAMES).spec)}
    assert found == {
        ("Secret", "hf-token", "", ""),
        ("Secret", "keys", "", ""),
        ("Secret", "tls", "", "kubernetes.io/tls"),
        ("ConfigMap", "ca", "ca.crt", ""),
        ("Secret", "proxy", "", ""),
        ("Secret", "pull", "", "kubernetes.io/dockerconfigjson"),
        ("Secret", "env", "a", ""),
        ("Secret", "files", "", ""),
        ("ConfigMap", "settings", "", ""),
    }


PULL = {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "x"}]}}}
KEY = {"jobs": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "a"}}}]}}
REFERENCES: list[tuple[str, dict[str, Any], One, CheckState, str]] = [
    ("a pull secret", PULL, {"type": "kubernetes.io/dockerconfigjson"}, OK, "x (podTemplate"),
    ("an old pull secret", PULL, {"type": "kubernetes.io/dockercfg"}, OK, "x (podTemplate"),
    ("of the wrong type", PULL, {"type": "Opaque"}, FAIL, "is of type Opaque: make it of type"),
    ("not there", PULL, None, FAIL, "is not there: make it"),
    ("unread", PULL, FORBIDDEN, WARN, "jane may not"),
    ("a key", KEY, {"data": {"a": ""}}, OK, "variable A of jobs"),
    ("another key", KEY, {"data": {"b": ""}}, FAIL, "has no key a: add it"),
]


@pytest.mark.parametrize(
    ("reason", "changes", "secret", "state", "part"), REFERENCES, ids=[row[0] for row in REFERENCES]
)
def test_references(reason: str, changes: dict[str, Any], secret: One, state: CheckState, part: str) -> None:
    found = only(service.references(facts(changes, secrets={"x": secret})))
    assert (found.state, found.check) == (state, "registry" if changes is PULL else "Secret")
    assert part in found.message


def test_a_failure_fails_and_a_warning_does_not() -> None:
    every = examine(
        ClusterFacts(version=version("v1.36.0"), definitions={DEFINITION: definition()}, operators=[deployment()])
    )
    assert not failed(every)
    assert failed(every, strict=True)
    assert verdict(every) == "0 failures, 3 warnings"
    assert failed(examine(replace(ClusterFacts(), operators=[])))


SCRIPT = """#!/bin/bash
cd {folder}; echo "$@" >> calls
case "$*" in
*version*) cat version.json;;
*"can-i patch configmaps"*) echo no; exit 1;;
*can-i*) echo yes;;
*nodes*) echo 'Error from server (Forbidden): jane may not list nodes' >&2; exit 1;;
*speculativeinferenceservices.serving.tandem.dev*" quickstart"*) cat service.json;;
*customresourcedefinitions*speculative*) cat definition.json;;
*" secrets pull"*) echo '{{"type": "Opaque"}}';;
*ignore-not-found*) ;;
*) echo '{{"items": []}}';;
esac
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    made = parse(QUICKSTART, **NAMES).model_dump(by_alias=True, mode="json", exclude_none=True)
    for name, answer in {"version": version("v1.36.0"), "service": made, "definition": definition()}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
    done = CliRunner().invoke(app, ["doctor", "quickstart", "-o", "json"])
    assert done.exit_code == 1, done.stderr
    found = {(row["check"], row["state"]) for row in json.loads(done.stdout)["findings"]}
    assert found >= {
        ("Kubernetes", "ok"),
        ("CRD", "ok"),
        ("operator", "fail"),
        ("registry", "fail"),
        ("GPUs", "warn"),
    }
    assert ("your rights", "warn") in found
    text = CliRunner().invoke(app, ["doctor"])
    assert text.exit_code == 1, text.stderr
    assert "jane may not list nodes" in text.stdout
    assert " ".join(text.stdout.splitlines()[-1].split()[:2]) == "1 failure,"
