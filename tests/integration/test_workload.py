"""Pods and groups on the real API server: what it takes, merges and refuses, and groups without their definition."""

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.core import Cluster
from cluster.errors import ClusterError
from support.groups import GROUPS
from support.groups import revision as group_revision
from support.pods import BASE, ROWS, rendered
from tandem import children as build
from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.children.metadata import pod_template
from tandem.render import LATEST, Record, Revision
from tandem.render.rendered import JobPod
from tandem.render.v1.pod import preflight_pod, server_pod, template_metadata, worker_pod
from unit.render.strategic_merge_rows import ROWS as MERGES

from .conftest import (
    LWS_CRD,
    RESYNC_SECONDS,
    AuditLog,
    Namespace,
    OperatorProcess,
    install_groups,
    new_namespace,
    wait_for,
)
from .dry_run import dry_run
from .groups import SEVERAL_NODES, leaders

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
NEEDED = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: serving}
value: 1000
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
"""
"""What placements of the rows name."""
PLAIN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "plain"},
    "spec": {"containers": [{"name": "plain", "image": "example.com/plain"}]},
}
NEEDING = {
    **PLAIN,
    "spec": {
        "serviceAccountName": "llama-server",
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "plain",
                "image": "example.com/plain",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


@pytest.fixture(scope="session")
def restricted(cluster: Cluster) -> Namespace:
    """A namespace that takes only pods of Pod Security `restricted`, with what the rows' pods name."""
    made = new_namespace(cluster)
    made.run("label", "namespace", made.name, RESTRICTED)
    made.run("apply", "-f", "-", stdin=NEEDED)
    made.run("create", "serviceaccount", "llama-server")
    wait_for("the ServiceAccount that pods without one get", lambda: made.get("serviceaccount", "default"))
    wait_for("the admission to have heard of it all", lambda: _takes(made, NEEDING) and not _takes(made, PLAIN))
    return made


def _takes(namespace: Namespace, manifest: dict[str, Any]) -> bool:
    try:
        dry_run(namespace, manifest)
    except ClusterError:
        return False
    return True


@pytest.fixture
def without_groups(cluster: Cluster, operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """An operator that started where LeaderWorkerSet's definition was not installed."""
    operator.stop()
    cluster.kubectl.run("delete", "crd", LWS_CRD)
    yield operator.start().wait_ready()
    install_groups(cluster)


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
def test_every_pod_passes_pod_security_restricted(row: dict[str, Any], restricted: Namespace) -> None:
    inputs = rendered(yaml.safe_dump(row["spec"]))
    service = SpeculativeInferenceService.model_validate(
        {"metadata": {"name": "llama", "namespace": restricted.name}, "spec": yaml.safe_load(BASE)["spec"]}
    )
    revision = Revision(
        digest="0123456789",
        record=Record(renderer=LATEST, serving_image="serving:1", profile=inputs.profile, spec=inputs.spec),
        files={},
        pod=server_pod(inputs),
        worker=worker_pod(inputs),
        nodes=1,
        metadata=template_metadata(inputs),
        preflight=JobPod({}, ""),
        builds={},
    )
    for pod in (revision.pod, preflight_pod(inputs)):
        template = pod_template(service, revision, pod, names.SERVER)
        manifest = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        manifest["metadata"]["name"] = "llama"
        dry_run(restricted, manifest)


def test_the_admission_is_on(restricted: Namespace) -> None:
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        dry_run(restricted, PLAIN)


@pytest.mark.parametrize(("base", "patch", "wanted", "reason"), MERGES, ids=[row[3] for row in MERGES])
def test_strategic_merges_are_the_api_servers(
    base: dict[str, Any], patch: dict[str, Any], wanted: dict[str, Any], reason: str, untouched: Namespace
) -> None:
    """A PodTemplate takes any pod template. Defaults that the API server adds are left out of the comparison."""
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "merge"}, "template": base}
    local = ("patch", "--local", "-f", "-", "--type=strategic", "-p", json.dumps({"template": patch}), "-o", "json")
    assert json.loads(untouched.run(*local, stdin=json.dumps(template)))["template"] == wanted, reason


def test_the_children_of_groups_are_as_their_definitions_say(untouched: Namespace) -> None:
    raw = yaml.safe_load(GROUPS)
    raw["metadata"] = {"name": "deepseek", "namespace": untouched.name}
    service = SpeculativeInferenceService.model_validate(raw)
    children = [
        build.workload(service, group_revision(service)),
        build.ssh_secret(service) | {"data": {"ssh-privatekey": "a2V5", "ssh-publickey": "a2V5"}},
        build.disruption_budget(service),
        build.network_policy(service, 2, [{"namespaceSelector": {}}]),
    ]
    for child in children:
        assert child is not None
        dry_run(untouched, child)


def nothing_missed(operator: OperatorProcess, plural: str) -> bool:
    """Whether comparisons with the API server go by that find nothing which the watch of a kind has not."""
    missed = operator.log.read_text("utf-8").count(f"the watch of {plural} missed")
    time.sleep(2.5 * RESYNC_SECONDS)
    return operator.log.read_text("utf-8").count(f"the watch of {plural} missed") == missed


def test_groups_wait_for_their_definition_and_come_up_with_it(
    cluster: Cluster, without_groups: OperatorProcess, namespace: Namespace
) -> None:
    operator = without_groups
    namespace.run("create", "secret", "generic", "svc-ssh", "--from-literal=password=theirs")
    namespace.apply(SEVERAL_NODES)
    namespace.wait("Ready", "False/LeaderWorkerSetMissing")
    assert "install https://lws.sigs.k8s.io" in namespace.message("Ready")
    assert namespace.conditions()["Stalled"] == "True/LeaderWorkerSetMissing"
    audit = AuditLog(cluster.audit_log)
    time.sleep(5)
    assert not [w for w in audit.operator_writes(namespace) if "/status/" in w], "it says so once"
    install_groups(cluster)
    wait_for("the LeaderWorkerSet", lambda: namespace.items("leaderworkersets"), log=operator.log)
    leaders(namespace, 1)
    namespace.wait("Ready", "True")
    assert namespace.get("sis", "svc")["status"]["replicas"] == 1
    (secret,) = [s for s in namespace.items("secrets") if s["metadata"]["name"] != "svc-ssh"]
    assert secret["type"] == "kubernetes.io/ssh-auth"
    (group,) = namespace.items("leaderworkersets")
    for template in ("leaderTemplate", "workerTemplate"):
        mounted = group["spec"]["leaderWorkerTemplate"][template]["spec"]["volumes"]
        assert [v["secret"]["secretName"] for v in mounted if "secret" in v] == [secret["metadata"]["name"]]
    assert set(namespace.get("secret", "svc-ssh")["data"]) == {"password"}, "somebody's own is not touched"
    wait_for("its kind to be watched", lambda: nothing_missed(operator, "leaderworkersets"), log=operator.log)
    namespace.run("delete", "leaderworkersets", "svc-server", "--cascade=orphan")
    wait_for("it to come back", lambda: namespace.items("leaderworkersets"), log=operator.log)
    assert operator.probe("/healthz")[0] == 200


def test_a_replica_grows_over_a_node_and_shrinks_again(operator: OperatorProcess, namespace: Namespace) -> None:
    """Deployment and LeaderWorkerSet take each other's place; the old one goes when the new one answers."""
    namespace.apply(SEVERAL_NODES, target__tensorParallelSize=1)
    namespace.wait("EnginesReady", "True")
    wait_for("the Deployment", lambda: namespace.items("deployments"))
    namespace.apply(SEVERAL_NODES)
    wait_for("the LeaderWorkerSet", lambda: namespace.items("leaderworkersets"), log=operator.log)
    time.sleep(2)
    assert namespace.items("deployments"), "it serves until its successor does"
    leaders(namespace, 1)
    wait_for("the Deployment to go", lambda: not namespace.items("deployments"), log=operator.log)
