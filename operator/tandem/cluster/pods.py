"""Reading pods: what keeps one from running, and what its container wrote at its end."""

from collections.abc import Iterable

from tandem import names
from tandem.api.wire import Object
from tandem.cluster.manifests import condition, is_true, label
from tandem.digest import digest
from tandem.rollout.lost import gone_folders
from tandem.rollout.observed import EngineEnd, Server, TaskPod
from tandem.rollout.termination import engine_failure
from tandem.rollout.verdict import parse_verdict

MOST_LAST_WORDS = 600
"""Characters of a container's termination message: a condition has 1024, and names the container."""


def server(pod: Object) -> Server:
    """A Triton pod."""
    container = _our_container(pod)
    running = container.get("state", {}).get("running", {})
    return Server(
        name=str(pod["metadata"]["name"]),
        revision=label(pod, names.LABEL_REVISION),
        worker=label(pod, names.LABEL_COMPONENT) == names.WORKER,
        ready=pod_ready(pod),
        ready_since=str((condition(pod, "Ready") or {}).get("lastTransitionTime", "")),
        problem=pod_problem(pod),
        deleting="deletionTimestamp" in pod["metadata"],
        ended=_phase(pod) in ("Succeeded", "Failed"),
        well_since=running.get("startedAt") if container.get("started") else None,
        engine_ends=tuple(_engine_ends(pod, container)),
    )


def task_pod(pod: Object) -> TaskPod:
    """A pod of a task's Job."""
    message = termination_message(pod)
    return TaskPod(
        name=str(pod["metadata"]["name"]),
        started=_phase(pod) not in ("Pending", "Failed"),
        succeeded=_phase(pod) == "Succeeded",
        verdict=None if message is None else parse_verdict(message),
        problem=pod_problem(pod),
    )


def gone(pods: Iterable[Object]) -> dict[str, str]:
    """Folders of the cache volume that pods which do not serve missed, and when they last did (RFC 3339 in UTC)."""
    missed: dict[str, str] = {}
    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses", []):
            if status.get("ready"):
                continue  # they were there in the end
            for ended in _ends(status):
                for folder in gone_folders(str(ended.get("message", ""))):
                    missed[folder] = max(missed.get(folder, ""), str(ended.get("finishedAt", "")))
    return missed


def pod_ready(pod: Object) -> bool:
    """Whether the kubelet's readiness probe, Triton's own readiness, succeeds."""
    return is_true(pod, "Ready")


def pod_problem(pod: Object) -> str | None:
    """What keeps the pod from running, in the words of the kubelet or scheduler; None when nothing does."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False":
        return f"pod {pod['metadata']['name']} cannot be scheduled: {scheduled.get('message', '')}"
    if not scheduled and (claims := pod.get("spec", {}).get("resourceClaims")):
        # The scheduler says nothing of a pod whose claims do not exist.
        wanted = ", ".join(str(c.get("resourceClaimTemplateName") or c.get("resourceClaimName")) for c in claims)
        return f"pod {pod['metadata']['name']} waits for its resourceClaims: is there {wanted}?"
    status = pod.get("status", {})
    # Ours before what others add, such as a mesh's proxy.
    main = sorted(status.get("containerStatuses", []), key=lambda each: each["name"] not in names.CONTAINERS)
    problems = (_container_problem(pod, each) for each in [*status.get("initContainerStatuses", []), *main])
    return next(filter(None, problems), None)


def termination_message(pod: Object) -> str | None:
    """What our container wrote to its termination log, None while it has not ended."""
    end = _our_container(pod).get("state", {}).get("terminated")
    return str(end.get("message", "")) if end else None


def _container_problem(pod: Object, container: Object) -> str | None:
    state, last = container.get("state", {}), container.get("lastState", {})
    where = f"pod {pod['metadata']['name']}, container {container['name']}"
    waiting = state.get("waiting", {})
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        ended = _last_words(last.get("terminated", {}))
        return f"{where}: {waiting['reason']}: {ended or waiting.get('message', '')}"
    terminated = state.get("terminated") or {}
    if terminated.get("exitCode"):
        return f"{where}: exit code {terminated['exitCode']}: {_last_words(terminated)}"
    return None


def _last_words(terminated: Object) -> str:
    """What ended a container, such as OOMKilled, and its termination message, whose end says why: most are a log."""
    reason, message = terminated.get("reason", "Error"), terminated.get("message", "").strip()
    if failure := engine_failure(message):
        return failure.description
    tail = message if len(message) <= MOST_LAST_WORDS else f"… {message[-MOST_LAST_WORDS:]}"
    return ": ".join(word for word in (reason if reason != "Error" else "", tail) if word)


def _our_container(pod: Object) -> Object:
    """Status of the container that does the pod's work, by its name: admission webhooks add others. Empty
    before there is one."""
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] in names.CONTAINERS), {})


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
