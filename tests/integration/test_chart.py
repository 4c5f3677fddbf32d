"""The chart in a real API server: it installs, its rights are enough and no more, it upgrades and goes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.core import Cluster
from cluster.errors import ClusterError
from support import images
from tandem import children
from tandem.api.types import SpeculativeInferenceService

from .conftest import (
    STAGES,
    AuditLog,
    Namespace,
    install_groups,
    install_scaled_objects,
    offer_volume,
    wait_for,
)
from .gateway import POOL, ROUTE, gateway_definitions
from .groups import SEVERAL_NODES, leaders
from .release import CHART, FAST, GROUP, Release, used

SERVICES = f"speculativeinferenceservices.{GROUP}"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
UNREGISTERED = {"metricsServer": {"register": False}}
"""Simulated pods answer nobody: an API of theirs would be a dead one. See test_metrics_server.py."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster without Tandem: what installs and removes a CustomResourceDefinition shares none."""
    made = Cluster("tandem-chart", say=print)
    made.down()
    made.folder.mkdir(parents=True)
    shutil.copytree(STAGES, made.folder / "stages")
    made.up(["simulated:2"])
    for namespace in ("tandem-system", "team-a", "team-b"):
        made.kubectl.run("create", "namespace", namespace)
        made.kubectl.run("label", "namespace", namespace, RESTRICTED)
    install_groups(made)
    install_scaled_objects(made)
    yield made
    made.down()


@pytest.fixture(scope="module")
def everywhere(cluster: Cluster) -> Release:
    """A release for all namespaces, with nothing but defaults that matter here."""
    release = Release(cluster, "tandem", "tandem-system", {**FAST, **UNREGISTERED})
    release.install()
    return release


@pytest.fixture(scope="module")
def one_team(cluster: Cluster, everywhere: Release) -> Release:
    """A release for one namespace, with everything that is optional; the other brought the resource."""
    extras = {"crds": {"install": False}, "replicas": 2, "networkPolicy": {"enabled": True}}
    extras |= {"keda": {"prometheusUrl": "http://prometheus.example:9090"}}
    release = Release(cluster, "tandem-team", "team-a", {**FAST, **extras, "namespaces": ["team-a"]})
    release.install()
    return release


def test_pod_security_restricted_takes_the_operator(everywhere: Release, one_team: Release) -> None:
    """`install` waited for the pods. That the admission is on: a pod that asks for nothing is refused."""
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        everywhere.kubectl("run", "plain", "--image=example.com/plain")
    for release, count in ((everywhere, 1), (one_team, 2)):
        deployment = release.cluster.kubectl.get("deployment", release.operator, "-n", release.namespace)
        assert deployment["status"]["readyReplicas"] == count


EVERYTHING = {
    "commonLabels": {"team": "ml"},
    "replicas": 2,
    "extraArgs": ["--log-level=debug"],
    "extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}],
    "extraEnvFrom": [{"configMapRef": {"name": "c", "optional": True}}],
    "extraVolumes": [{"name": "ca", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "podSecurityContext": {"supplementalGroups": [5]},
    "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
    "resources": {"limits": {"cpu": 1, "ephemeral-storage": "1Gi"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "metricsServer": {"priorityClassName": "system-cluster-critical", "nodeSelector": {}, "affinity": {}},
    "monitoring": {"dashboard": {"enabled": True}},
    "conformance": {"service": "svc", "namespace": "team-a"},
}


@pytest.mark.parametrize("values", [{}, EVERYTHING, {**EVERYTHING, "namespaces": ["team-a", "team-b"]}])
def test_the_api_server_knows_every_field_of_the_objects(everywhere: Release, values: dict[str, Any]) -> None:
    """By its own types and by validation, as a dry run: no schema of somebody else's can know them better."""
    rendered = everywhere.helm("template", "tandem-tried", str(CHART), values={**images.NEEDED, **values})
    options = ("--dry-run=server", "--validate=strict", "--server-side", "--force-conflicts")
    applied = everywhere.cluster.kubectl.run("apply", *options, "-f", "-", stdin=rendered).splitlines()
    assert len(applied) == len([each for each in yaml.safe_load_all(rendered) if each])


def test_a_second_operator_of_the_same_namespaces_is_refused(
    everywhere: Release, one_team: Release, tmp_path: Path
) -> None:
    """By Helm, before it makes anything: each would write over what the other wrote."""
    values = {**FAST, **UNREGISTERED, "crds": {"install": False}}
    second = Release(everywhere.cluster, "tandem-second", "team-b", values)
    with pytest.raises(ClusterError, match=r'ClusterRole "tandem:serves-all-namespaces" .*exists and cannot be'):
        second.install()
    of_team = Release(everywhere.cluster, "tandem-third", "team-b", {**values, "namespaces": ["team-b", "team-a"]})
    with pytest.raises(ClusterError, match='Role "tandem:serves-this-namespace" in namespace "team-a" exists'):
        of_team.install()
    # Applied without Helm's look, the last one's word counts: the operator that was there stands back.
    name = "tandem:serves-all-namespaces"
    everywhere.kubectl("annotate", "clusterrole", name, "--overwrite", "serving.tandem.dev/lease=other/operator")
    with everywhere.running(tmp_path):
        log = tmp_path / "operator.log"
        wait_for("it to say so", lambda: f"ClusterRole {name} is of another operator" in log.read_text("utf-8"))
    ours = f"serving.tandem.dev/lease={everywhere.namespace}/{everywhere.operator}"
    everywhere.kubectl("annotate", "clusterrole", name, "--overwrite", ours)
    for release in (second, of_team):
        assert not everywhere.cluster.kubectl.works("get", "deployment", release.operator, "-n", "team-b")


def test_the_notes_name_what_the_cluster_lacks(everywhere: Release, one_team: Release) -> None:
    notes = everywhere.helm("get", "notes", everywhere.name)
    assert "There is no StorageClass: services that download models" in notes
    assert "No node offers nvidia.com/gpu" in notes
    assert "There is no KEDA" not in notes
    assert "There is no LeaderWorkerSet" not in notes
    assert "No node" not in one_team.helm("get", "notes", one_team.name), "it may not list any"


def rights(release: Release) -> set[tuple[str, str]]:
    """(verb, resource.group) of each right that the chart gives the operator where it serves, of its Lease and of the
    object that says whose the namespaces are."""
    roles = release.cluster.kubectl.get(
        "roles,clusterroles", "-A", "-l", f"app.kubernetes.io/instance={release.name}"
    )
    return {
        (verb, ".".join(part for part in (resource, group) if part))
        for role in roles["items"]
        if role["metadata"]["name"].startswith((release.operator, "tandem:serves"))
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }


FINALIZERS = ("update", f"speculativeinferenceservices/finalizers.{GROUP}")
IF_BUSY = {("list", "events")}
"""Of a Job or pod that has waited: whether one does is the machine's matter. See `test_operator`."""


def asked_by_admission(rights: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """What OwnerReferencesPermissionEnforcement asks of the operator for those that it used: to delete what it sets
    an owner on, and to hold up the owner's deletion."""
    children = {resource for verb, resource in rights if verb == "create"} - {"events", "secrets"}
    children -= {"persistentvolumeclaims", "leases.coordination.k8s.io"}  # nobody's child
    return {FINALIZERS, *(("delete", resource) for resource in children)}


CHILDREN = "deploy,svc,sa,cm,pdb,jobs,netpol,hpa,httproutes,inferencepools"
"""Kinds of the children of a service whose replicas are no groups, but for KEDA's."""


def owners(team: Namespace) -> set[str]:
    """UIDs of those that own children; "" stands for nobody."""
    found = team.items(CHILDREN, "app.kubernetes.io/managed-by=tandem")
    return {(each["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"] for each in found}


def lets_go_and_takes_up(team: Namespace) -> None:
    """`kubectl delete --cascade=orphan`, and a new service over the children, with which they go in the end."""
    spec: dict[str, Any] = {
        "autoscaling": {"maxReplicas": 2},
        "serving__openAI": {"route": ROUTE, "inferencePool": POOL},
        "serving__access": {"from": [{"podSelector": {}}]},
    }
    team.apply(**spec)
    wait_for("all that it can have", lambda: all(team.items(kind) for kind in ("netpol", "hpa", "inferencepools")))
    team.wait("Ready", "True")
    pods = team.server_pods()
    team.run("delete", "sis", "svc", "--cascade=orphan")
    wait_for("the children to be let go", lambda: owners(team) == {""})
    team.apply(**spec)
    wait_for("them to be taken up", lambda: owners(team) == {team.get("sis", "svc")["metadata"]["uid"]})
    team.wait("Ready", "True")
    assert team.server_pods() == pods
    team.run("delete", "sis", "svc")
    wait_for("all children to go", lambda: not owners(team))


@pytest.mark.parametrize("scope", ["everywhere", "one_team"])
def test_the_operator_needs_each_of_its_rights_and_no_other(
    scope: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A service comes up, changes revision, clients and size, and goes: by an operator with the chart's rights, where
    an admission plugin looks at owners, as OpenShift's does."""
    release: Release = request.getfixturevalue(scope)
    team = Namespace(release.cluster, "team-a")
    release.kubectl("delete", "lease", release.operator, "--ignore-not-found")  # of another test's operator
    audit = AuditLog(release.cluster.audit_log)
    with gateway_definitions(release.cluster), release.running(tmp_path):
        lets_go_and_takes_up(team)
        team.apply()
        team.wait("Ready", "True")
        old = {c["metadata"]["name"] for c in team.items("cm")}
        team.apply(speculation__maxDraftLen=2)
        team.wait("Ready", "True")
        offer_volume(team)
        team.apply(draft__model={"uri": "hf://org/draft"})
        team.wait("Ready", "True")
        wait_for(
            "the old revision's ConfigMap to go", lambda: old - {c["metadata"]["name"] for c in team.items("cm")}
        )
        team.apply(serving__access={"from": [{"podSelector": {}}]})
        wait_for("the policy", lambda: team.get("netpol", "svc-server"))
        team.apply()
        wait_for("the policy to go", lambda: not team.get("netpol", "svc-server"))
        team.apply(autoscaling={"maxReplicas": 2})
        wait_for("the autoscaler", lambda: team.get("hpa", "svc-server"))
        team.apply(autoscaling={"maxReplicas": 2, "source": "KEDA"})
        wait_for("KEDA's", lambda: team.get("scaledobject", "svc-server"))
        assert not team.get("hpa", "svc-server"), "one writer of /scale"
        team.apply()
        wait_for("it to go", lambda: not team.get("scaledobject", "svc-server"))
        team.apply(serving__openAI={"route": ROUTE, "inferencePool": POOL})
        wait_for(
            "the routes", lambda: team.get("httproute", "svc-openai") and team.get("inferencepool", "svc-openai")
        )
        team.apply()
        wait_for("them to go", lambda: not (team.items("httproutes") or team.items("inferencepools")))
        team.apply(SEVERAL_NODES)
        wait_for("the LeaderWorkerSet", lambda: team.items("leaderworkersets"))
        leaders(team, 1)
        wait_for("the Deployment to go", lambda: not team.get("deployment", "svc-server"))
        team.run("delete", "pod", "svc-server-0", "--force")
        team.apply()
        wait_for("the LeaderWorkerSet to go", lambda: not team.items("leaderworkersets"))
        team.run("delete", "sis", "svc")
        wait_for("all children to go", lambda: not team.children())
        team.run("delete", "pvc", "tandem-cache")
    entries = [e for e in audit.entries() if e["user"]["username"] == release.account]
    forbidden = [e["requestURI"] for e in entries if e.get("responseStatus", {}).get("code") == 403]
    assert forbidden == []
    assert used(entries) | asked_by_admission(used(entries)) | IF_BUSY == rights(release)


CAN = [
    # why, release, verb, resource, namespace, whether
    ("the services of any namespace", "everywhere", "list", SERVICES, "team-b", True),
    ("all of them at once", "everywhere", "watch", SERVICES, "", True),
    ("workloads of any namespace", "everywhere", "patch", "deployments.apps", "team-b", True),
    ("its Lease", "everywhere", "update", "leases.coordination.k8s.io/tandem-operator", "tandem-system", True),
    ("another's Lease", "everywhere", "update", "leases.coordination.k8s.io/other", "tandem-system", False),
    ("a Lease elsewhere", "everywhere", "create", "leases.coordination.k8s.io", "team-b", False),
    ("no Secrets", "everywhere", "get", "secrets", "team-a", False),
    ("not even its own", "everywhere", "list", "secrets", "tandem-system", False),
    ("what people ask for is theirs", "everywhere", "patch", SERVICES, "team-a", False),
    ("services are people's to delete", "everywhere", "delete", SERVICES, "team-a", False),
    ("pods are the Deployment's", "everywhere", "create", "pods", "team-a", False),
    ("no shell", "everywhere", "create", "pods/exec", "team-a", False),
    ("a workload gives way to one of the other kind", "everywhere", "delete", "deployments.apps", "team-a", True),
    ("keys are made", "everywhere", "create", "secrets", "team-a", True),
    ("and not changed", "everywhere", "patch", "secrets", "team-a", False),
    ("no volume is lost", "everywhere", "delete", "persistentvolumeclaims", "team-a", False),
    ("no rights to give", "everywhere", "create", "rolebindings.rbac.authorization.k8s.io", "team-a", False),
    ("no tokens", "everywhere", "create", "serviceaccounts/token", "team-a", False),
    ("no impersonation", "everywhere", "impersonate", "serviceaccounts", "team-a", False),
    ("no definitions", "everywhere", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", False),
    ("no nodes", "everywhere", "list", "nodes", "", False),
    ("its namespace", "one_team", "list", SERVICES, "team-a", True),
    ("workloads there", "one_team", "create", "deployments.apps", "team-a", True),
    ("its Lease there", "one_team", "update", "leases.coordination.k8s.io/tandem-team-operator", "team-a", True),
    ("no other namespace", "one_team", "list", SERVICES, "team-b", False),
    ("not all at once", "one_team", "list", SERVICES, "", False),
    ("no workloads elsewhere", "one_team", "create", "deployments.apps", "team-b", False),
    ("no ConfigMaps elsewhere", "one_team", "get", "configmaps", "tandem-system", False),
]


def can(cluster: Cluster, user: str, verb: str, resource: str, namespace: str) -> bool:
    where = ("-n", namespace) if namespace else ("-A",)
    name, _, rest = resource.partition("/")
    what = (name, f"--subresource={rest}") if rest in ("exec", "token", "scale", "status") else (resource,)
    return cluster.kubectl.works("auth", "can-i", verb, *what, *where, f"--as={user}")


@pytest.mark.parametrize(
    ("scope", "verb", "resource", "namespace", "allowed"), [row[1:] for row in CAN], ids=[row[0] for row in CAN]
)
def test_rights(
    scope: str, verb: str, resource: str, namespace: str, allowed: bool, request: pytest.FixtureRequest
) -> None:
    release: Release = request.getfixturevalue(scope)
    request.getfixturevalue("one_team")  # both are installed, whichever is asked
    assert can(release.cluster, release.account, verb, resource, namespace) is allowed


PEOPLE = [
    # why, built-in role, verb, resource, whether
    ("viewers read", "view", "get", SERVICES, True),
    ("viewers watch", "view", "watch", SERVICES, True),
    ("viewers change nothing", "view", "patch", SERVICES, False),
    ("viewers do not scale", "view", "patch", f"{SERVICES}/scale", False),
    ("editors read", "edit", "list", SERVICES, True),
    ("editors create", "edit", "create", SERVICES, True),
    ("editors delete", "edit", "delete", SERVICES, True),
    ("editors scale", "edit", "patch", f"{SERVICES}/scale", True),
    ("status is the operator's", "edit", "patch", f"{SERVICES}/status", False),
    ("admins create", "admin", "create", SERVICES, True),
]


@pytest.fixture(scope="module")
def people(cluster: Cluster, everywhere: Release) -> Cluster:
    """Users named as the built-in role that each has in team-b."""
    for role in ("view", "edit", "admin"):
        cluster.kubectl.run("-n", "team-b", "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")

    def aggregated() -> bool:  # by a controller, a moment later
        rights = (("view", "get"), ("edit", "create"), ("admin", "create"))  # each role's on its own
        return all(can(cluster, role, verb, SERVICES, "team-b") for role, verb in rights)

    wait_for("the built-in roles to have rights", aggregated)
    return cluster


@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"), [row[1:] for row in PEOPLE], ids=[row[0] for row in PEOPLE]
)
def test_rights_of_people(people: Cluster, role: str, verb: str, resource: str, allowed: bool) -> None:
    assert can(people, role, verb, resource, "team-b") is allowed
    assert not can(people, role, verb, resource, "team-a"), "only where they are bound"


def columns(cluster: Cluster) -> list[str]:
    """Names of the printer columns."""
    version = cluster.kubectl.get("crd", SERVICES)["spec"]["versions"][0]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def older_chart(folder: Path) -> Path:
    """The chart as if of a time when the resource had no column `Age`."""
    copy = Path(shutil.copytree(CHART, folder / "tandem"))
    crd = yaml.safe_load((copy / "files" / "crd.yaml").read_text(encoding="utf-8"))
    old = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [c for c in old if c["name"] != "Age"]
    (copy / "files" / "crd.yaml").write_text(yaml.safe_dump(crd, sort_keys=False), encoding="utf-8")
    return copy


def test_upgrade_brings_the_crd_and_uninstall_leaves_it(everywhere: Release, tmp_path: Path) -> None:
    """Also services stay; a second installation takes up what the first one left."""
    cluster = everywhere.cluster
    everywhere.install(older_chart(tmp_path))
    assert "Age" not in columns(cluster)
    Namespace(cluster, "team-b").apply()
    everywhere.install()
    assert "Age" in columns(cluster)
    everywhere.helm("uninstall", everywhere.name, "--wait")
    assert not cluster.kubectl.works("get", "clusterrole", everywhere.operator)
    assert cluster.kubectl.run("get", "sis", "-n", "team-b", "-o", "name").split() == [
        f"speculativeinferenceservice.{GROUP}/svc"
    ]
    everywhere.install()
    assert cluster.kubectl.works("get", "clusterrole", everywhere.operator)


def removal(release: Release) -> list[list[str]]:
    """The commands of the release's notes that remove all, as words."""
    notes = release.helm("get", "notes", release.name).split("To remove all:")[1]
    return [line.split() for line in notes.splitlines() if line.startswith("  ")]


def test_the_commands_of_the_notes_remove_all(everywhere: Release, one_team: Release) -> None:
    cluster = everywhere.cluster
    for team in (Namespace(cluster, "team-a"), Namespace(cluster, "team-b")):
        team.apply()
        service = SpeculativeInferenceService.model_validate(team.get("sis", "svc"))
        team.run("apply", "-f", "-", stdin=json.dumps(children.cache_claim(service)))
    for release in (one_team, everywhere):
        for program, *arguments in removal(release):
            release.helm(*arguments) if program == "helm" else cluster.kubectl.run(*arguments)
    kinds = "deploy,svc,sa,cm,pvc,pdb,netpol,roles,rolebindings,clusterroles,clusterrolebindings,crd"
    assert cluster.kubectl.run("get", kinds, "-A", "-l", "app.kubernetes.io/name=tandem", "-o", "name") == ""
    leases = cluster.kubectl.run("get", "leases", "-A", "-o", "name")
    assert "tandem" not in leases
