"""Reading pods: what a server or a task's pod does, and what its container wrote at its end."""

from collections.abc import Iterable
from datetime import timedelta

from tandem import names
from tandem.api.wire import Object
from tandem.cluster.manifests import condition, created, is_true, label
from tandem.cluster.problems import our_container, pod_problem, pod_restart
from tandem.digest import digest
from tandem.rollout.lost import gone_folders
from tandem.rollout.observed import EngineEnd, Problem, Server, TaskPod
from tandem.rollout.termination import engine_failure
from tandem.rollout.verdict import parse_verdict
from tandem.times import moment, seconds, stamp


def server(pod: Object, waits_for: Problem | None = None) -> Server:
    """A Triton pod. `waits_for`: what was read elsewhere, see `waits`."""
    container = our_container(pod)
    running = container.get("state", {}).get("running", {})
    return Server(
        name=str(pod["metadata"]["name"]),
        created=created(pod),
        revision=label(pod, names.LABEL_REVISION),
        worker=label(pod, names.LABEL_COMPONENT) == names.WORKER,
        began=_phase(pod) in ("Running", "Succeeded") or bool(_ends(container)),
        ready=pod_ready(pod),
        ready_since=by_the_api_server(pod, str((condition(pod, "Ready") or {}).get("lastTransitionTime", ""))),
        problem=waits_for or pod_problem(pod),
        restart=pod_restart(pod),
        deleting="deletionTimestamp" in pod["metadata"],
        ended=_phase(pod) in ("Succeeded", "Failed"),
        well_since=running.get("startedAt") if container.get("started") else None,
        engine_ends=tuple(_engine_ends(pod, container)),
    )


def task_pod(pod: Object, waits_for: Problem | None = None) -> TaskPod:
    """A pod of a task's Job. What it did is what our container did, whatever becomes of those that others add."""
    container = our_container(pod)
    end = container.get("state", {}).get("terminated")
    statuses = pod.get("status", {}).get("containerStatuses", [])
    run_on = [each["name"] for each in statuses if each is not container and "running" in each.get("state", {})]
    return TaskPod(
        name=str(pod["metadata"]["name"]),
        started=_phase(pod) not in ("Pending", "Failed"),
        succeeded=not end.get("exitCode") if end else _phase(pod) == "Succeeded",
        held_by=tuple(run_on) if end else (),
        verdict=parse_verdict(str(end.get("message", ""))) if end else None,
        problem=waits_for or pod_problem(pod),
    )


def gone(pods: Iterable[Object]) -> dict[str, str]:
    """Folders of the cache volume that pods which do not serve missed, and when the newest of these pods' containers
    started (RFC 3339 in UTC). A server looks for a folder after it has started, and may end long after: one that
    started before the folder was there says nothing about it."""
    missed: dict[str, str] = {}
    for pod in pods:
        container = our_container(pod)
        if container.get("ready"):
            continue  # they were there in the end
        for ended in _ends(container):
            for folder in gone_folders(str(ended.get("message", ""))):
                at = by_the_api_server(pod, str(ended.get("startedAt") or ended.get("finishedAt") or ""))
                missed[folder] = max(missed.get(folder, ""), at)
    return missed


def by_the_api_server(pod: Object, at: str) -> str:
    """A time of the pod's node by the API server's clock: the kubelet reports at once what happens, so that the last
    time in its status is when the API server took that. `at` may be empty."""
    entries = pod["metadata"].get("managedFields", [])
    taken = max((str(each["time"]) for each in entries if each.get("subresource") == "status"), default="")
    last = max(filter(None, _of_the_node(pod.get("status", {}))), key=moment, default="")
    if not (at and taken and last):
        return at
    return stamp(moment(at) + timedelta(seconds=seconds(last, taken)))


def _of_the_node(status: Object) -> Iterable[str]:
    """Times that the kubelet wrote."""
    for each in status.get("conditions", []):
        if each["type"] in ("Initialized", "ContainersReady", "Ready"):
            yield str(each.get("lastTransitionTime") or "")
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        yield str(container.get("state", {}).get("running", {}).get("startedAt") or "")
        yield from (str(end.get("finishedAt") or "") for end in _ends(container))


def pod_ready(pod: Object) -> bool:
    """Whether the kubelet's readiness probe, Triton's own readiness, succeeds."""
    return is_true(pod, "Ready")


def termination_message(pod: Object) -> str | None:
    """What our container wrote to its termination log, None while it has not ended."""
    end = our_container(pod).get("state", {}).get("terminated")
    return str(end.get("message", "")) if end else None


def ended_well(pod: Object) -> bool:
    """Whether our container ended without an error."""
    end = our_container(pod).get("state", {}).get("terminated")
    return bool(end) and not end.get("exitCode")


def _ends(container: Object) -> list[Object]:
    """How the container ended, and the one before it: while it waits for its next start, that is the last state."""
    states = container.get("state", {}), container.get("lastState", {})
    return [end for state in states if (end := state.get("terminated"))]


def _engine_ends(pod: Object, container: Object) -> Iterable[EngineEnd]:
    for end in _ends(container):
        engine, at = engine_failure(str(end.get("message", ""))), end.get("finishedAt")
        if engine and at:
            run = digest([pod["metadata"].get("uid"), end.get("containerID"), at], length=16)
            yield EngineEnd(run, str(at), engine)


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))
