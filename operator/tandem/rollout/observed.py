"""One service's children as they were observed: values, which `tandem.cluster.parse` makes of the manifests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tandem import names
from tandem.api.conditions import ConditionStatus, ServingReason
from tandem.api.wire import Object
from tandem.autoscaling import KubernetesVersion
from tandem.errors import Forbidden
from tandem.render import Record
from tandem.rollout.termination import EngineFailure
from tandem.rollout.verdict import Verdict


@dataclass(frozen=True)
class Live:
    """An object in the cluster: to be compared, replaced or deleted. Nothing here reads its manifest."""

    kind: str
    name: str
    created: str = ""
    """When it was made, RFC 3339 in UTC."""
    manifest: Object = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class StoredRevision:
    """The ConfigMap of a rendered revision."""

    live: Live
    digest: str
    record: Record | None
    """How it was rendered; None where this operator cannot render it: another version wrote it."""


@dataclass(frozen=True)
class TaskResult:
    """The ConfigMap of a task's verdict."""

    live: Live
    component: str
    """The task's: FETCH, BUILD or PREFLIGHT of `tandem.names`."""
    verdict: Verdict
    claim: str = ""
    """UID of the cache volume's claim that the task worked in; empty where that was not noted."""
    refill: bool = False
    """Whether it was the second time, after pods reported that what the first one brought is gone."""


@dataclass(frozen=True)
class Problem:
    """What keeps a pod from being made, or from running."""

    reason: ServingReason
    message: str
    """Names the pod, and has the words of whoever reported it."""


@dataclass(frozen=True)
class Restart:
    """A failure of a container that runs again."""

    problem: Problem
    since: str
    """When it was started again, RFC 3339."""
    lasted: float
    """Seconds that it had run before."""


@dataclass(frozen=True)
class TaskPod:
    """A pod of a Job."""

    name: str
    started: bool = False
    """Whether it got past Pending, and did not fail."""
    succeeded: bool = False
    """Whether our container ended well."""
    held_by: tuple[str, ...] = ()
    """Containers of others that run on though ours has ended: the pod does not end, nor its Job."""
    verdict: Verdict | None = None
    """Termination message of our container; None while that has not ended."""
    problem: Problem | None = None


@dataclass(frozen=True)
class Job:
    """The Job of a task."""

    live: Live
    pod_digest: str = ""
    """Digest of the pod that it was made with; empty where that was not noted."""
    claim: str = ""
    refill: bool = False
    """Both as in `TaskResult`."""
    complete: bool = False
    failed: bool = False
    failure: str = ""
    """Why it failed, in the words of the Job controller."""
    pods: Sequence[TaskPod] = ()
    """The oldest first."""
    problem: Problem | None = None
    """Why it gets no pod."""


@dataclass(frozen=True)
class EngineEnd:
    """One end of a server's container, by a failure of its engine."""

    run: str
    """Digest of the container that ended: each restart has another, and a reader at any later time finds the same."""
    at: str
    """When it ended, RFC 3339."""
    engine: EngineFailure


@dataclass(frozen=True)
class Server:
    """A Triton pod: a replica, or one pod of the group that is a replica."""

    name: str
    revision: str
    created: str = ""
    """When it was made, RFC 3339 in UTC."""
    worker: bool = False
    """Whether another pod leads its group."""
    began: bool = False
    """Whether its container ran at any time."""
    ready: bool = False
    """Whether the kubelet's readiness probe, Triton's own readiness, succeeds."""
    ready_since: str = ""
    """When that changed last, RFC 3339, by the API server's clock; empty: never."""
    problem: Problem | None = None
    restart: Restart | None = None
    """Its container's last failure, where that runs again."""
    deleting: bool = False
    ended: bool = False
    """Whether none of its containers starts again."""
    well_since: str | None = None
    """When the container that runs was started; None before a generation went through all models."""
    engine_ends: Sequence[EngineEnd] = ()
    """The failures that it still shows."""


@dataclass(frozen=True)
class Workload:
    """The Deployment or LeaderWorkerSet of the servers."""

    live: Live
    revision: str
    applied: str = ""
    """When Tandem changed it last, RFC 3339."""
    current: bool = False
    """Whether its controller has acted on it as it is."""
    failure: str | None = None
    """Why its pods cannot be made (a quota, an admission webhook), where its controller says so."""


@dataclass(frozen=True)
class ChildCondition:
    """A condition of a child, as its controller reports it."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True)
class Autoscaler:
    """HorizontalPodAutoscaler, or KEDA's ScaledObject."""

    live: Live
    conditions: Sequence[ChildCondition] = ()


@dataclass(frozen=True)
class Routing:
    """HTTPRoute or InferencePool; conditions of all its parents."""

    live: Live
    conditions: Sequence[ChildCondition] = ()


@dataclass(frozen=True)
class CacheClaim:
    """The PersistentVolumeClaim of models and engines; no service owns it."""

    uid: str = ""
    created: str = ""
    access_modes: tuple[str, ...] = ()
    made_by_us: bool = False
    deleting: bool = False


@dataclass(frozen=True)
class Observed:
    """A service's children, and what else a decision on it looks at."""

    service: Live = field(default_factory=lambda: Live("", ""))
    revisions: Sequence[StoredRevision] = ()
    """The newest first."""
    results: Sequence[TaskResult] = ()
    """The newest first."""
    jobs: Sequence[Job] = ()
    servers: Sequence[Server] = ()
    workloads: Sequence[Workload] = ()
    """The oldest first; two while one takes the other's place."""
    autoscalers: Sequence[Autoscaler] = ()
    """Of the kinds of all autoscaling sources; one object, but while one takes another's place."""
    routing: Sequence[Routing] = ()
    network_policies: Sequence[Live] = ()
    others: Sequence[Live] = ()
    """Children that are compared with what they should be, and nothing else."""
    claim: CacheClaim | None = None
    claim_name: str = ""
    """The claim that the service uses; empty: none."""
    source_claims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Access modes of the claims that models are mounted from (`pvc://`), where several pods may do so."""
    benchmark: Mapping[str, str] | None = None
    """Data of the ConfigMap that `tandem bench --record` writes."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Folders of the cache volume (`/cache/models/KEY`, `/cache/engines/KEY`) that pods missed which do not
    serve, and when they last did, RFC 3339 in UTC."""
    progress: Mapping[str, str] = field(default_factory=dict)
    """What pods that download report, by pod."""
    not_understood: str = ""
    """What of the service's spec this operator does not know; empty: nothing."""
    waits: bool = False
    """Whether a pod has not begun, or is not made: what keeps it is not watched."""
    kubernetes: KubernetesVersion | None = None
    """Version of the API server, where what is asked for depends on it; None: not known."""
    unread: Mapping[str, Forbidden] = field(default_factory=dict)
    """Kinds that may not be read, and why: nothing is known of theirs."""

    def child(self, kind: str, name: str) -> Live | None:
        """The child of that kind and name, or None."""
        return self._children.get((kind, name))

    def job(self, name: str) -> Job | None:
        """The Job of that name, or None."""
        return next((job for job in self.jobs if job.live.name == name), None)

    def result(self, name: str) -> TaskResult | None:
        """The result of that name, or None."""
        return next((result for result in self.results if result.live.name == name), None)

    def autoscaler(self, kind: str, name: str) -> Autoscaler | None:
        """The autoscaler of that kind and name, or None."""
        return next((each for each in self.autoscalers if (each.live.kind, each.live.name) == (kind, name)), None)

    def routed(self, kind: str, name: str) -> Routing | None:
        """The route or pool of that kind and name, or None."""
        return next((each for each in self.routing if (each.live.kind, each.live.name) == (kind, name)), None)

    @property
    def replicas(self) -> list[Server]:
        """Servers that stay: one a replica, its leader where that is a group."""
        return [server for server in self._staying if not server.worker]

    @property
    def failed(self) -> list[Server]:
        """Servers that failed as a whole since the last one that answers was made: the kubelet refused them, or
        evicted them. Their workload makes others; these stay until they are cleaned up."""
        answers = max((server.created for server in self.servers if server.ready), default="")
        ended = [server for server in self.servers if server.ended and not server.deleting and server.problem]
        return [server for server in ended if server.created >= answers]

    @property
    def workers(self) -> list[Server]:
        """The pods of groups that another one leads."""
        return [server for server in self._staying if server.worker]

    @property
    def live_revision(self) -> str:
        """Revision of the newest workload's pods; empty when there is no workload."""
        return self.workloads[-1].revision if self.workloads else ""

    @property
    def never_began(self) -> bool:
        """Whether the newest workload asks for pods of which none ever ran: they cannot be made (a quota, an
        admission webhook, security constraints), pulled or scheduled."""
        if not self.workloads:
            return False
        pods = [server for server in self.servers if server.revision == self.live_revision]
        return not any(server.began for server in pods) and bool(pods or self.workloads[-1].failure)

    @property
    def awaits_claim(self) -> bool:
        """Whether the user's claim is to come, or one is to go: claims are not watched."""
        if self.claim is None:
            return self.claim_name not in ("", names.CACHE_CLAIM)
        return self.claim.deleting

    @property
    def _staying(self) -> list[Server]:
        return [server for server in self.servers if not (server.deleting or server.ended)]

    @cached_property
    def _children(self) -> dict[tuple[str, str], Live]:
        lives = [
            *(revision.live for revision in self.revisions),
            *(result.live for result in self.results),
            *(job.live for job in self.jobs),
            *(workload.live for workload in self.workloads),
            *(autoscaler.live for autoscaler in self.autoscalers),
            *(each.live for each in self.routing),
            *self.network_policies,
            *self.others,
        ]
        return {(live.kind, live.name): live for live in lives}
