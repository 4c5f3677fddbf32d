"""kill -9 of the operator, on a real kubelet, at any moment: the same end state, and no pod is replaced."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.core import is_ready

from .conftest import Site, wait_for
from .operator_pod import OPERATOR, SYSTEM, operator_pod

pytestmark = pytest.mark.nightly


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


def wait_restarted(site: Site, before: dict[str, Any], times: int) -> None:
    """Wait until the kubelet reports so many more restarts of the operator's container, in the same pod."""
    wanted = restarts(before) + times
    wait_for("the kubelet to report the restarts", lambda: restarts(operator_pod(site)) >= wanted)
    now = operator_pod(site)
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    assert restarts(now) == wanted


def test_killed_when_all_is_ready_nothing_changes(site: Site) -> None:
    operator, pods, before = operator_pod(site), site.server_pods("quickstart"), site.state("quickstart")
    kill(site)
    wait_restarted(site, operator, 1)
    site.wait_reconciled("quickstart")
    assert site.server_pods("quickstart") == pods
    site.assert_state("quickstart", before)


def test_its_pod_lost_another_takes_over_and_nothing_changes(site: Site) -> None:
    pods, before = site.server_pods("quickstart"), site.state("quickstart")
    site.run("delete", "pod", "-n", SYSTEM, "-l", OPERATOR, "--grace-period=0", "--force")
    wait_for("another pod to be Ready", lambda: any(map(is_ready, site.items("pods", OPERATOR, SYSTEM))))
    site.wait_reconciled("quickstart")
    assert site.server_pods("quickstart") == pods
    site.assert_state("quickstart", before)


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


def test_killed_while_a_service_comes_up_it_comes_to_the_same_end(site: Site, another: str) -> None:
    operator, pods_made = operator_pod(site), site.pods_made()
    site.apply(another)
    for moment, reached in MOMENTS.items():
        wait_for(moment, partial(reached, site, another))
        kill(site)
    site.wait_condition(another, "Ready", "True")
    site.wait_reconciled(another)
    site.assert_state(another, site.undisturbed)
    assert (pods_made("job-controller"), pods_made("replicaset-controller")) == (1, 1)
    wait_restarted(site, operator, len(MOMENTS))
