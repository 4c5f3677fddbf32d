"""Replicas of several nodes: LeaderWorkerSet, keys, budget and NetworkPolicy as golden, and how one takes a
Deployment's place."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from support import goldens
from support.groups import GROUPS, revision
from support.pods import PROFILE
from support.services import DATA, parse
from support.world import applied, observed_of
from tandem import children as build
from tandem import names
from tandem.api.folders import folders
from tandem.api.types import SpeculativeInferenceService
from tandem.children.desired import Desired
from tandem.children.secret import PRIVATE_KEY, PUBLIC_KEY
from tandem.cluster.keys import new_key_pair
from tandem.conditions.ready import ServerCounts, status
from tandem.conditions.situation import Situation
from tandem.engines.tensorrt_llm.group import over_the_group
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.launch import launch_plan
from tandem.render.v1.stack import Stack
from tandem.rollout.decide import Decision
from tandem.rollout.plan import CreateKeys, Delete, plan
from tandem.settings import Settings

METRICS: list[dict[str, Any]] = [{"namespaceSelector": {}}]


def test_golden_children_of_a_group() -> None:
    service = parse(GROUPS)
    policy = build.network_policy(service, 2, METRICS)
    assert policy
    children = [
        build.workload(service, revision(service)),
        build.ssh_secret(service),
        build.disruption_budget(service),
        policy,
    ]
    goldens.check(DATA / "output" / "group", goldens.manifests(children))


ACCESS: list[tuple[str, list[Any], int, list[Any], list[tuple[Any, Any]] | None]] = [
    ("nobody is named: no policy", [], 1, METRICS, None),
    (
        "groups without named clients: ssh and MPI are theirs alone, serving is open",
        [],
        2,
        METRICS,
        [({}, [8000, 8001, 8002, 9000]), ("pods of the service", None)],
    ),
    (
        "named clients, and figures for the cluster",
        [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        1,
        METRICS,
        [([{"ipBlock": {"cidr": "10.0.0.0/8"}}], [8000, 8001, 8002, 9000]), (METRICS, [8002])],
    ),
    (
        "named clients alone",
        [{"podSelector": {}}],
        1,
        [],
        [([{"podSelector": {}}], [8000, 8001, 8002, 9000])],
    ),
]


@pytest.mark.parametrize(("reason", "peers", "nodes", "metrics", "wanted"), ACCESS, ids=[row[0] for row in ACCESS])
def test_who_may_connect(
    reason: str, peers: list[Any], nodes: int, metrics: list[Any], wanted: list[tuple[Any, Any]] | None
) -> None:
    policy = build.network_policy(parse(GROUPS, serving={"access": {"from": peers}}), nodes, metrics)
    if wanted is None:
        assert policy is None, reason
        return
    assert policy is not None
    own = [{"podSelector": names.replica_selector("deepseek")}]
    expected = []
    for source, ports in wanted:
        rule: dict[str, Any] = {"from": own if source == "pods of the service" else source} if source else {}
        expected.append({**rule, **({"ports": [{"port": p, "protocol": "TCP"} for p in ports]} if ports else {})})
    assert policy["spec"]["ingress"] == expected, reason
    assert policy["spec"]["policyTypes"] == ["Ingress"], "ports that are not named are closed"


@pytest.mark.parametrize(
    ("own", "default", "reach"),
    [
        ([], [], None),
        ([], [{"podSelector": {}}], [{"podSelector": {}}]),
        ([{"ipBlock": {"cidr": "10.0.0.0/8"}}], [{"podSelector": {}}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
    ],
    ids=["nothing is kept out", "the administrator's default", "a service names its own"],
)
def test_who_reaches_a_service_by_default(own: list[Any], default: list[Any], reach: list[Any] | None) -> None:
    policy = build.network_policy(parse(GROUPS, serving={"access": {"from": own}}), 1, [], default)
    assert (policy["spec"]["ingress"][0]["from"] if policy else None) == reach


def test_the_pods_mount_the_key_pair_of_their_own_service_alone() -> None:
    """Nobody's Secret by chance, nor that of an earlier service of the same name: no right allows to look."""
    mounted = []
    for uid in ("uid-1", "uid-2"):
        service = parse(GROUPS.replace("uid-1", uid))
        (secret,) = (name for name in [build.ssh_secret(service)["metadata"]["name"]])
        templates = build.workload(service, revision(service))["spec"]["leaderWorkerTemplate"]
        for template in (templates["leaderTemplate"], templates["workerTemplate"]):
            volumes = [each["secret"]["secretName"] for each in template["spec"]["volumes"] if "secret" in each]
            assert volumes == [secret]
        mounted.append(secret)
    assert len({*mounted, "deepseek-ssh"}) == 3


def test_a_key_pair_is_one_pair_in_openssh_formats() -> None:
    first, second = new_key_pair(), new_key_pair()
    assert first != second
    private, public = (base64.b64decode(first[name]) for name in (PRIVATE_KEY, PUBLIC_KEY))
    key = serialization.load_ssh_private_key(private, None)
    assert key.public_key() == serialization.load_ssh_public_key(public)
    assert public.startswith(b"ssh-ed25519 ")


def leader(name: str, component: str = names.SERVER, *, ready: bool = True, digest: str = "0123456789") -> Any:
    labels = {names.LABEL_COMPONENT: component, names.LABEL_REVISION: digest}
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [condition]}}


def decision(service: SpeculativeInferenceService) -> Decision:
    wanted = revision(service)
    keys = build.ssh_secret(service) if wanted.worker else None
    return Decision(revision=wanted, desired=Desired(workload=build.workload(service, wanted), keys=keys))


def workload_of(asked: Decision) -> dict[str, Any]:
    assert asked.desired.workload
    return asked.desired.workload


def kinds(actions: list[Any]) -> list[str]:
    signs = {CreateKeys: "keys", Delete: "-"}
    return [signs.get(type(a), "+") + (a.live.kind if isinstance(a, Delete) else a.manifest["kind"]) for a in actions]


STEPS = [
    ("nothing is there", [], ["keysSecret", "+LeaderWorkerSet"]),
    ("a group is starting", [leader("a"), leader("b", ready=False)], ["keysSecret"]),
    ("a worker is no group", [leader("a"), leader("b", names.WORKER)], ["keysSecret"]),
    ("a group of another revision is not ours yet", [leader("a"), leader("b", digest="old")], ["keysSecret"]),
    ("all groups answer: what they took is there", [leader("a"), leader("b")], []),
]


@pytest.mark.parametrize(("reason", "pods", "wanted"), STEPS, ids=[row[0] for row in STEPS])
def test_keys_are_made_until_all_groups_answer(
    reason: str, pods: list[Any], wanted: list[str], settings: Settings
) -> None:
    service = parse(GROUPS)
    asked = decision(service)
    sets = [applied(workload_of(asked))] if pods else []
    assert kinds(plan(service, asked, observed_of(*sets, *pods), settings)) == wanted, reason


def test_a_deployment_goes_when_the_groups_answer(settings: Settings) -> None:
    service, small = parse(GROUPS), parse(GROUPS, target__tensorParallelSize=8)
    deployment = applied(build.workload(small, revision(small, "old")), "2025-01-01T00:00:00Z")
    assert deployment["kind"] == "Deployment"
    asked = decision(service)
    both = deployment, applied(workload_of(asked)), leader("old", digest="old")
    assert kinds(plan(service, asked, observed_of(*both, leader("a")), settings)) == ["keysSecret"]
    answering = observed_of(*both, leader("a"), leader("b"))
    assert kinds(plan(service, asked, answering, settings)) == ["-Deployment"]
    assert answering.live_revision == "0123456789", "the newer one"


def test_to_replace_a_deployment_goes_before_the_groups_answer(settings: Settings) -> None:
    """The groups need its GPUs."""
    service, small = parse(GROUPS, rollout={"strategy": "Replace"}), parse(GROUPS, target__tensorParallelSize=8)
    deployment = applied(build.workload(small, revision(small, "old")), "2025-01-01T00:00:00Z")
    asked = decision(service)
    steps = kinds(plan(service, asked, observed_of(deployment, leader("old", digest="old")), settings))
    assert steps == ["keysSecret", "+LeaderWorkerSet", "-Deployment"]


def test_a_policy_goes_when_nobody_asks_for_it(settings: Settings) -> None:
    service = parse(GROUPS)
    policy = build.network_policy(service, 2, METRICS)
    assert policy is not None
    asked = decision(service)
    observed = observed_of(applied(workload_of(asked)), applied(policy))
    assert "-NetworkPolicy" in kinds(plan(service, asked, observed, settings))


def test_status_counts_groups_and_shows_what_keeps_a_worker_from_running() -> None:
    waiting = {"name": "triton", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    worker = leader("w", names.WORKER, ready=False)
    worker["status"]["containerStatuses"] = [waiting]
    service = parse(GROUPS)
    observed = observed_of(leader("a"), leader("b", ready=False), worker)
    rollout = ServerCounts.of(observed, "0123456789")
    assert (rollout.replicas, rollout.ready) == (2, 1)
    assert rollout.problem
    assert rollout.problem.message == "pod w, container triton: ImagePullBackOff: no such image"
    shown = status(Situation(service, Decision(), observed, "now"))
    assert shown["selector"] == "serving.tandem.dev/service=deepseek,serving.tandem.dev/component=server"


def test_the_leader_starts_all_ranks() -> None:
    spec = parse(GROUPS).spec
    inputs = Inputs(spec, PROFILE, "serving:1", folders(spec, {}))
    plan = json.loads(launch_plan(inputs, Stack({}, {}, {})))
    assert plan["group"] == {"hosts": 2, "slots": 8}
    command = over_the_group(inputs.plan, ["tritonserver", "--model-repository=/models"], ["B", "A"])
    assert command == [
        *("mpirun", "--hostfile", "/tmp/tandem-group/hostfile", "-n", "16", "--map-by", "ppr:8:node"),
        *("--bind-to", "none", "-x", "A", "-x", "B", "--mca", "orte_keep_fqdn_hostnames", "1"),
        *("trtllm-llmapi-launch", "tritonserver", "--model-repository=/models"),
    ]


def test_a_replica_of_one_pod_starts_its_server_alone() -> None:
    spec = parse(GROUPS, target__tensorParallelSize=8).spec
    inputs = Inputs(spec, PROFILE, "serving:1", folders(spec, {}))
    assert "group" not in json.loads(launch_plan(inputs, Stack({}, {}, {})))
