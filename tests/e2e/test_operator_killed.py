"""kill -9 of the operator, on a real kubelet, at any moment: the same end state, and no pod is replaced."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.core import is_ready

from .conftest import Site, wait_for

SYSTEM, OPERATOR = "tandem-system", "app.kubernetes.io/component=operator"


def operator_pod(site: Site) -> dict[str, Any]:
    (pod,) = site.items("pods", OPERATOR, SYSTEM)
    return pod


def restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def kill(site: Site) -> None:
    """kill -9 of the operator's process; the kubelet may still be about to start it again."""
    (process,) = wait_for("the operator's process", lambda: processes_of(operator_pod(site)))
    process.kill()
    process.wait(60)


def processes_of(pod: dict[str, Any]) -> list[psutil.Process]:
    """The processes of Tandem in a pod, by its control group."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("tandem" in word for word in process.info["cmdline"] or ())
        and pod["metadata"]["uid"] in control_group(process)
    ]


def control_group(process: psutil.Process) -> str:
    """Its control group's path; empty when it ended meanwhile."""
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def replace_pod(site: Site, *how: str) -> None:
    """Delete the operator's pod; its Deployment makes another."""
    site.run("delete", "pod", "-n", SYSTEM, "-l", OPERATOR, *how)
    wait_for("another pod to be Ready", lambda: any(map(is_ready, site.items("pods", OPERATOR, SYSTEM))))


@pytest.fixture
def operator(site: Site) -> dict[str, Any]:
    """An operator pod that never ended: the kubelet restarts its container at once, then after 10 s, then 20."""
    if restarts(operator_pod(site)):
        replace_pod(site)
    return operator_pod(site)


def test_killed_when_all_is_ready_nothing_changes(site: Site, operator: dict[str, Any]) -> None:
    pods, before = site.server_pods("quickstart"), site.state("quickstart")
    kill(site)
    wait_for("the kubelet to restart it", lambda: restarts(operator_pod(site)) == 1)
    site.wait_reconciled("quickstart")
    assert operator_pod(site)["metadata"]["uid"] == operator["metadata"]["uid"]
    assert site.server_pods("quickstart") == pods
    assert site.state("quickstart") == before


def test_its_pod_lost_another_takes_over_and_nothing_changes(site: Site) -> None:
    pods, before = site.server_pods("quickstart"), site.state("quickstart")
    replace_pod(site, "--grace-period=0", "--force")
    site.wait_reconciled("quickstart")
    assert site.server_pods("quickstart") == pods
    assert site.state("quickstart") == before


def phase(site: Site, name: str, component: str) -> str:
    """Phase of the service's pod of that component; empty when there is none."""
    pods = site.items("pods", site.label(name, component))
    return str(pods[0]["status"]["phase"]) if pods else ""


def deployed(site: Site, name: str) -> bool:
    return bool(site.items("deployments", site.label(name)))


def preflight_began(site: Site, name: str) -> bool:
    """Also where it is over: its Job and pod are there for a few seconds."""
    return bool(site.items("jobs", site.label(name))) or deployed(site, name)


def preflight_runs(site: Site, name: str) -> bool:
    return phase(site, name, "preflight") in ("Running", "Succeeded") or deployed(site, name)


MOMENTS: dict[str, Callable[[Site, str], bool]] = {
    "it was applied": lambda site, name: True,
    "the preflight's Job exists": preflight_began,
    "the preflight's pod runs": preflight_runs,
    "the Deployment exists": deployed,
    "the server starts": lambda site, name: phase(site, name, "server") == "Running",
}
# Not all in one: the kubelet waits twice as long before each restart, and what comes up does not wait.
BRING_UPS = [
    ("it was applied", "the preflight's pod runs", "the server starts"),
    ("the preflight's Job exists", "the Deployment exists"),
]


@pytest.mark.parametrize("moments", BRING_UPS, ids=" / ".join)
def test_killed_while_a_service_comes_up_it_comes_to_the_same_end(
    site: Site, operator: dict[str, Any], another: str, moments: tuple[str, ...]
) -> None:
    pods_made = site.pods_made()
    site.apply(another)
    for moment in moments:
        wait_for(moment, partial(MOMENTS[moment], site, another))
        kill(site)
    site.wait_condition(another, "Ready", "True")
    site.wait_reconciled(another)
    assert site.state(another) == site.undisturbed
    assert (pods_made("job-controller"), pods_made("replicaset-controller")) == (1, 1)
    wait_for("the kubelet to tell of the restarts", lambda: restarts(operator_pod(site)) >= len(moments))
    now = operator_pod(site)
    assert now["metadata"]["uid"] == operator["metadata"]["uid"]
    assert restarts(now) == len(moments)
