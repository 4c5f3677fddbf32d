"""What was seen of one service: its object and children as the API server gave them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem import names
from tandem.errors import Forbidden
from tandem.rollout.termination import engine_failure

MOST_LAST_WORDS = 600
"""Characters of what a container said last: a condition has 1024, and says whose words they are."""
Object = dict[str, Any]
"""A Kubernetes object as JSON. Only builders make them, and only this module and `status` read into them."""


@dataclass(frozen=True)
class Observed:
    """A service and everything labelled as its own. Lists are in no order."""

    service: Object
    configmaps: Sequence[Object] = field(default_factory=tuple)
    jobs: Sequence[Object] = field(default_factory=tuple)
    deployments: Sequence[Object] = field(default_factory=tuple)
    services: Sequence[Object] = field(default_factory=tuple)
    service_accounts: Sequence[Object] = field(default_factory=tuple)
    disruption_budgets: Sequence[Object] = field(default_factory=tuple)
    network_policies: Sequence[Object] = field(default_factory=tuple)
    leader_worker_sets: Sequence[Object] = field(default_factory=tuple)
    autoscalers: Sequence[Object] = field(default_factory=tuple)
    """HorizontalPodAutoscalers and KEDA's ScaledObjects; one of them, but while one takes the other's place."""
    pods: Sequence[Object] = field(default_factory=tuple)
    cache: Object | None = None
    """The PersistentVolumeClaim of models and engines; nobody's child."""
    progress: Mapping[str, str] = field(default_factory=dict)
    """What pods that download said of their progress, by pod."""
    unread: Mapping[str, Forbidden] = field(default_factory=dict)
    """Kinds that may not be read, and why: nothing is known of theirs."""

    def children(self) -> list[Object]:
        """All that Tandem applies or deletes: everything but pods."""
        return [
            *self.configmaps,
            *self.jobs,
            *self.deployments,
            *self.services,
            *self.service_accounts,
            *self.disruption_budgets,
            *self.network_policies,
            *self.leader_worker_sets,
            *self.autoscalers,
        ]

    def child(self, kind: str, name: str) -> Object | None:
        """The child of that kind and name, or None."""
        return next((c for c in self.children() if c["kind"] == kind and c["metadata"]["name"] == name), None)

    def component(self, objects: Sequence[Object], component: str) -> list[Object]:
        """Those of `objects` with that component label."""
        return [o for o in objects if label(o, names.LABEL_COMPONENT) == component]

    def server_pods(self, component: str = names.SERVER) -> list[Object]:
        """Triton pods, leaders where replicas are groups, that are not on their way out; or a group's workers."""
        pods = self.component(self.pods, component)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and not has_ended(pod)]

    @property
    def workloads(self) -> list[Object]:
        """Deployment or LeaderWorkerSet, oldest first; both while one takes the other's place."""
        found = [*self.deployments, *self.leader_worker_sets]
        return sorted(found, key=lambda workload: str(workload["metadata"].get("creationTimestamp", "")))

    def live_revision(self) -> str | None:
        """Revision of the newest workload's pod template, None when there is no workload."""
        if not self.workloads:
            return None
        spec = self.workloads[-1]["spec"]
        template = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
        return str(template["metadata"].get("labels", {}).get(names.LABEL_REVISION, "")) or None


def label(obj: Object, key: str) -> str:
    """Value of a label; empty when absent."""
    return str(obj["metadata"].get("labels", {}).get(key, ""))


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type in `status.conditions`, or None."""
    conditions: list[Object] = obj.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    """Whether that condition is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


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
    # Ours before what others put beside it, such as a mesh's proxy.
    main = sorted(status.get("containerStatuses", []), key=lambda found: found["name"] not in names.CONTAINERS)
    for container in [*status.get("initContainerStatuses", []), *main]:
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
    """What ended a container, such as OOMKilled, and what it said, by its log for the most part: the end says why."""
    reason, said = terminated.get("reason", "Error"), terminated.get("message", "").strip()
    if failure := engine_failure(said):
        return failure.description
    tail = said if len(said) <= MOST_LAST_WORDS else f"… {said[-MOST_LAST_WORDS:]}"
    return ": ".join(word for word in (reason if reason != "Error" else "", tail) if word)


def our_container(pod: Object) -> Object:
    """Status of the container that does the pod's work, by its name: admission webhooks put others beside it. Empty
    before there is one."""
    statuses: list[Object] = pod.get("status", {}).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] in names.CONTAINERS), {})


def termination_message(pod: Object) -> str | None:
    """What our container wrote to its termination log, None while it has not ended."""
    end = our_container(pod).get("state", {}).get("terminated")
    return str(end.get("message", "")) if end else None


def has_ended(pod: Object) -> bool:
    """Whether the pod as a whole has ended: none of its containers starts again."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
