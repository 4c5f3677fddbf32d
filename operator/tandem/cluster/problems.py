"""What keeps a pod from running, in the words of scheduler, kubelet and controllers, as its manifest has them."""

from collections.abc import Iterator

from tandem import names
from tandem.api.conditions import ServingReason
from tandem.api.wire import Object
from tandem.cluster.manifests import condition, is_true, label
from tandem.rollout.observed import Problem, Restart
from tandem.rollout.redaction import redacted
from tandem.rollout.termination import engine_failure
from tandem.times import seconds

SERVED = "it had served, so that its log may hold prompts: see kubectl logs --previous"
MOST_LAST_WORDS = 600
"""Characters of a container's termination message: a condition has 1024, and names the container."""


def pod_problem(pod: Object) -> Problem | None:
    """The first of what is wrong; None when nothing is."""
    return next(_problems(pod), None)


def pod_restart(pod: Object) -> Restart | None:
    """How our container, which runs, failed before; None where it did not, or an engine's failure ended it, which the
    condition EngineHealthy shows."""
    container = our_container(pod)
    failed = _failed_before(container)
    began, since = failed.get("startedAt"), container.get("state", {}).get("running", {}).get("startedAt")
    if not (began and since and failed.get("finishedAt")) or engine_failure(str(failed.get("message", ""))):
        return None
    # Without its log: since it is Ready again, nobody knows whether it had clients before.
    why = failed.get("reason", "Error")
    message = (
        f"pod {pod['metadata']['name']}, container {container['name']}: started again after exit code"
        f" {failed['exitCode']}{f': {why}' if why != 'Error' else ''}"
    )
    lasted = seconds(began, failed["finishedAt"])
    return Restart(Problem(ServingReason.CONTAINER_FAILS, message), since, lasted)


def our_container(pod: Object) -> Object:
    """Status of the container that does the pod's work, by its name: admission webhooks add others. Empty
    before there is one."""
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] in names.CONTAINERS), {})


def _problems(pod: Object) -> Iterator[Problem]:
    where, status = f"pod {pod['metadata']['name']}", pod.get("status", {})
    if reason := _reason(pod):
        yield Problem(ServingReason.POD_FAILED, f"{where}: {reason}")
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False":
        message = f"{where} cannot be scheduled: {scheduled.get('message', '')}"
        yield Problem(ServingReason.POD_UNSCHEDULABLE, message)
    if not scheduled and (claims := pod.get("spec", {}).get("resourceClaims")):
        # The scheduler says nothing of a pod whose claims do not exist.
        wanted = ", ".join(str(c.get("resourceClaimTemplateName") or c.get("resourceClaimName")) for c in claims)
        yield Problem(ServingReason.POD_UNSCHEDULABLE, f"{where} waits for its resourceClaims: is there {wanted}?")
    # Ours before what others add, such as a mesh's proxy.
    main = sorted(status.get("containerStatuses", []), key=lambda each: each["name"] not in names.CONTAINERS)
    for container in [*status.get("initContainerStatuses", []), *main]:
        if message := _of_container(pod, container):
            yield Problem(ServingReason.CONTAINER_FAILS, f"{where}, container {container['name']}: {message}")
    if our_container(pod).get("ready") and not is_true(pod, "Ready"):
        yield Problem(ServingReason.POD_NOT_READY, f"{where} answers, and gets no requests: {_unready(pod)}")


def _reason(pod: Object) -> str:
    """Why the pod as a whole ended, or is not heard of: Evicted, UnexpectedAdmissionError, NodeLost, ..."""
    status = pod.get("status", {})
    disrupted = condition(pod, "DisruptionTarget") if status.get("phase") == "Failed" else None
    said = status if status.get("reason") else disrupted or {}
    return ": ".join(text for text in (said.get("reason", ""), said.get("message", "").strip()) if text)


def _unready(pod: Object) -> str:
    others = [each["name"] for each in pod["status"].get("containerStatuses", []) if not each.get("ready")]
    gates = [gate["conditionType"] for gate in pod.get("spec", {}).get("readinessGates", [])]
    missing = [gate for gate in gates if not is_true(pod, gate)]
    if others:
        return f"container {', '.join(others)} is not ready"
    return (
        f"its readiness gate {', '.join(missing)} is not True" if missing else "its condition Ready is not True yet"
    )


def _of_container(pod: Object, container: Object) -> str:
    state, last = container.get("state", {}), container.get("lastState", {})
    waiting, terminated = state.get("waiting", {}), state.get("terminated") or {}
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        ended = _last_words(pod, last.get("terminated", {}))
        return f"{waiting['reason']}: {ended or waiting.get('message', '')}"
    if terminated.get("exitCode"):
        return _end(pod, terminated)
    if failed := _failed_before(container):
        # Until it is Ready again that is why it is not: a loop of failures must not read as a start.
        return "" if container.get("ready") else f"starts again after {_end(pod, failed)}"
    return ""


def _failed_before(container: Object) -> Object:
    """How the container that runs ended the last time, where that was a failure; else empty."""
    last: Object = container.get("lastState", {}).get("terminated") or {}
    return last if "running" in container.get("state", {}) and last.get("exitCode") else {}


def _end(pod: Object, terminated: Object) -> str:
    words = _last_words(pod, terminated)
    return f"exit code {terminated['exitCode']}" + (f": {words}" if words else "")


def _last_words(pod: Object, terminated: Object) -> str:
    """What ended a container, such as OOMKilled, and its termination message, whose end says why: most are a log."""
    reason, message = terminated.get("reason", "Error"), terminated.get("message", "").strip()
    if failure := engine_failure(message):
        return failure.description
    if message and _had_clients(pod, terminated):
        message = SERVED
    message = redacted(message)
    tail = message if len(message) <= MOST_LAST_WORDS else f"… {message[-MOST_LAST_WORDS:]}"
    return ": ".join(word for word in (reason if reason != "Error" else "", tail) if word)


def _had_clients(pod: Object, terminated: Object) -> bool:
    """Whether a server was Ready before it ended, and its log may hold prompts. The pod's condition Ready then
    changed last after the container had begun; one that was not Ready in this run has it from before."""
    if label(pod, names.LABEL_COMPONENT) not in (names.SERVER, names.WORKER):
        return False
    changed, began = (condition(pod, "Ready") or {}).get("lastTransitionTime"), terminated.get("startedAt")
    if not (changed and began):
        return False
    return seconds(began, changed) > 0
