"""Rights that are revoked, and a proxy's page in place of answers: a real API server, and the chart's rights."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.core import Cluster
from faults.injected import Page
from faults.proxy import Fault
from support import images

from .conftest import REPOSITORY, Namespace, OperatorProcess, wait_for
from .fault_proxy import FaultProxy, running_proxy

HOME, ROLE = "tandem-rights", "tandem-operator"


@pytest.fixture(scope="module")
def role(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """The ClusterRole that the chart gives the operator; with its ServiceAccount and its Lease's Role."""
    cluster.kubectl.run("create", "namespace", HOME)
    command = [str(binaries.ensure(["helm"], print)["helm"]), "template", "tandem", "charts/tandem", "-n", HOME]
    command += images.SET
    command += [f"--show-only=templates/{name}.yaml" for name in ("rbac", "rbac-lease", "serviceaccount")]
    rendered = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    cluster.kubectl.run("apply", "-f", "-", stdin=rendered)
    documents = [each for each in yaml.safe_load_all(rendered) if each]
    yield next(each for each in documents if each["kind"] == "ClusterRole")
    cluster.kubectl.run("delete", "-f", "-", stdin=rendered)


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    with running_proxy(cluster) as proxy:
        yield proxy


@pytest.fixture
def limited(
    lasting_operator: OperatorProcess, role: dict[str, Any], proxy: FaultProxy, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """An operator with those rights, behind the proxy, in the place of the usual one."""
    cluster = lasting_operator.cluster
    if lasting_operator.runs:
        lasting_operator.stop()
    grant(cluster, role)
    made = OperatorProcess(cluster, tmp_path)
    token = cluster.kubectl.run("-n", HOME, "create", "token", ROLE).strip()
    made.environment = {"KUBECONFIG": str(proxy.kubeconfig(tmp_path / "kubeconfig", token)), "POD_NAMESPACE": HOME}
    try:
        yield made.start().wait_ready()
    finally:
        grant(cluster, role)
        if made.runs:
            made.kill()


def grant(cluster: Cluster, role: dict[str, Any], *revoked: tuple[str, str]) -> None:
    """Give the role its rights but (verb, resource) of `revoked`."""
    rules = [
        {
            **rule,
            "resources": [resource],
            "verbs": [verb for verb in rule["verbs"] if (verb, resource) not in revoked],
        }
        for rule in role["rules"]
        for resource in rule["resources"]
    ]
    changed = {**role, "rules": [rule for rule in rules if rule["verbs"]]}
    cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(changed))


# What is revoked of a service that is Ready; it may read them by name.
LISTS = ["poddisruptionbudgets", "services", "networkpolicies"]


@pytest.mark.parametrize("resource", LISTS)
def test_a_kind_that_may_not_be_listed_leaves_the_others_repaired(
    limited: OperatorProcess, role: dict[str, Any], namespace: Namespace, resource: str
) -> None:
    wants_policy: dict[str, Any] = (
        {"serving__access": {"from": [{"podSelector": {}}]}} if resource == "networkpolicies" else {}
    )
    namespace.apply(**wants_policy)
    namespace.wait("Ready", "True")
    pods, pid = namespace.server_pods(), limited.usage.pid
    grant(limited.cluster, role, ("list", resource), ("watch", resource))
    namespace.wait("RightsGranted", "False/RightMissing")
    assert f"tandem-operator may not list {resource}" in namespace.message("RightsGranted")
    assert "run helm upgrade" in namespace.message("RightsGranted")
    assert namespace.conditions()["Ready"].startswith("True")
    wait_for("readiness that names it", lambda: f"may not list {resource}" in limited.probe("/readyz")[1])
    assert limited.probe("/readyz")[0] == 200
    assert "tandem_operator_forbidden_total{" in limited.probe("/metrics")[1]
    namespace.run("delete", "pdb", "svc-server")
    namespace.run("delete", "service", "svc-triton")
    wait_for("the repair", lambda: namespace.get("service", "svc-triton") and namespace.get("pdb", "svc-server"))
    grant(limited.cluster, role)
    wait_for("it to heal", lambda: namespace.conditions() and "RightsGranted" not in namespace.conditions())
    wait_for("readiness", lambda: limited.probe("/readyz")[1].strip() == "ok: leader")
    assert (namespace.server_pods(), limited.usage.pid) == (pods, pid)


def test_a_child_that_may_not_be_written_leaves_the_others_repaired(
    limited: OperatorProcess, role: dict[str, Any], namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    grant(limited.cluster, role, ("patch", "services"))
    asked = ("auth", "can-i", "patch", "services", f"--as=system:serviceaccount:{HOME}:{ROLE}")
    wait_for("the API server to know", lambda: not namespace.cluster.kubectl.works("-n", namespace.name, *asked))
    namespace.run("delete", "service", "svc-triton")
    namespace.run("delete", "pdb", "svc-server")
    namespace.wait("Stalled", "True/RightMissing")
    assert "may not patch services in namespace" in namespace.message("RightsGranted")
    wait_for("the repair of another", lambda: namespace.get("pdb", "svc-server"))
    other = Namespace(namespace.cluster, namespace.name)
    assert not other.get("service", "svc-triton")
    grant(limited.cluster, role)
    namespace.wait("Ready", "True")
    assert namespace.get("service", "svc-triton")
    assert "RightsGranted" not in namespace.conditions()


def test_without_a_look_at_jobs_nothing_is_begun_anew(
    limited: OperatorProcess, role: dict[str, Any], namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    pods, children = namespace.server_pods(), namespace.children()
    grant(limited.cluster, role, ("list", "jobs"), ("watch", "jobs"))
    namespace.wait("Stalled", "True/RightMissing")
    assert "may not list jobs.batch in namespace" in namespace.message("Stalled")
    namespace.apply(speculation__maxDraftLen=2)
    time.sleep(3)
    assert (namespace.server_pods(), namespace.children()) == (pods, children)
    grant(limited.cluster, role)
    wait_for("the new revision", lambda: namespace.children() != children)
    # The status is written once the children are.
    wait_for("no stall", lambda: "Stalled" not in namespace.conditions())
    namespace.wait("Ready", "True")


def test_a_login_page_in_the_api_servers_place(
    limited: OperatorProcess, proxy: FaultProxy, namespace: Namespace
) -> None:
    namespace.apply()
    namespace.wait("Ready", "True")
    pods, pid = namespace.server_pods(), limited.usage.pid
    proxy.arm(Page())
    wait_for("the truth", lambda: limited.probe("/readyz")[0] == 503, log=limited.log)
    namespace.run("delete", "service", "svc-triton")
    time.sleep(5)
    assert limited.runs
    assert limited.probe("/healthz")[0] == 200, "a restart would not take the page away"
    assert "the answer is not that of a Kubernetes API server" in limited.log.read_text(encoding="utf-8")
    proxy.arm(Fault())
    limited.wait_ready()
    wait_for("the repair", lambda: namespace.get("service", "svc-triton"), log=limited.log)
    assert (namespace.server_pods(), limited.usage.pid) == (pods, pid)
