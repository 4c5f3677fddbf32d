"""The types of conditions, what a reason is, and the reasons of servers, autoscaling and speculation."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NewType, Self

ConditionStatus = Literal["True", "False", "Unknown"]

ExternalReason = NewType("ExternalReason", str)
"""A reason that is read, not chosen: of a Job's verdict, of an autoscaler's condition, of a status written before."""


class ConditionType(StrEnum):
    """A type of condition."""

    meaning: str
    present: str
    """When status has it."""
    warns: bool
    """Whether a Warning Event is written when it becomes False."""

    def __new__(cls, word: str, meaning: str, present: str = "always", warns: bool = False) -> Self:
        """`word`: as in status."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.meaning, made.present, made.warns = meaning, present, warns
        return made

    READY = (
        "Ready",
        "All server pods are of the wanted revision and answer. While it is False it has the reason of what is in the"
        " way.",
    )
    RECONCILING = (
        "Reconciling",
        "The operator is at work; nothing is left to you. It has the reason of `Ready`.",
        "only while it is True",
    )
    STALLED = (
        "Stalled",
        "A person must act: the specification is refused, a Job has failed, the API server refuses a request, or the"
        " rollout's deadline has passed. It has the reason of `Ready`, or one of its own.",
        "only while it is True",
    )
    SPEC_ACCEPTED = ("SpecAccepted", "The profile can run the specification.")
    MODELS_READY = ("ModelsReady", "The models are downloaded and load.", "once the specification is accepted")
    ENGINES_READY = (
        "EnginesReady",
        "TensorRT engines are built and fit; in mode LLMAPI the image takes the engine's arguments.",
        "where there are engines or arguments to check",
    )
    PAIR_COMPATIBLE = ("PairCompatible", "Draft and target have the same tokens.", "where there is a draft model")
    AVAILABLE = ("Available", "A server pod answers, of whichever revision.")
    SCALING_ACTIVE = ("ScalingActive", "The autoscaler works.", "with `spec.autoscaling`")
    ROUTE_ACCEPTED = (
        "RouteAccepted",
        "Gateways have taken the route, and the pool, to the OpenAI endpoint.",
        "with `serving.openAI.route` or `inferencePool`",
    )
    METRICS_AVAILABLE = (
        "MetricsAvailable",
        "The metrics server answers and reads the pods.",
        "where the operator has a metrics server",
    )
    SPECULATION_ACTIVE = (
        "SpeculationActive",
        "Tokens are drafted.",
        "where the operator has a metrics server",
        True,
    )
    SPECULATION_BENEFICIAL = (
        "SpeculationBeneficial",
        "Speculation is faster than the target alone, at the present load.",
        "where there is a metrics server, or a recorded benchmark",
        True,
    )
    ACCEPTED_LENGTH_KEPT = (
        "AcceptedLengthKept",
        "The mean accepted length is at least `speculation.minAcceptedLength`.",
        "with `speculation.minAcceptedLength`",
        True,
    )
    OBJECTIVES_REACHABLE = (
        "ObjectivesReachable",
        "The models can meet the objectives of autoscaling.",
        "only while it is False",
        True,
    )
    RIGHTS_GRANTED = (
        "RightsGranted",
        "The operator has the rights that this service needs.",
        "only while it is False",
        True,
    )
    CHILDREN_KEPT = (
        "ChildrenKept",
        "Children stay as Tandem applies them.",
        "only while it is False",
        True,
    )
    PODS_HEALTHY = (
        "PodsHealthy",
        "Nothing keeps a pod of the servers or of a Job from running. A container that failed and runs again is well"
        " once it is Ready and has run for as long as before it failed, ten minutes at most.",
        "only while it is False",
        True,
    )
    ENGINE_HEALTHY = (
        "EngineHealthy",
        "No engine failed in the last ten minutes.",
        "only while it is False",
    )


@dataclass(frozen=True)
class Shown:
    """A condition that shows a reason, and the statuses that it may have with it."""

    type: ConditionType
    statuses: tuple[ConditionStatus, ...]


class Reason(StrEnum):
    """Why a condition has its status. Subclasses have the members: `NAME = shown, word, meaning, action`."""

    shown: tuple[Shown, ...]
    """The conditions whose own reason it is. `Ready`, `Reconciling` and `Stalled` take over those of the others."""
    meaning: str
    action: str
    """What to do; empty: nothing."""

    def __new__(cls, shown: tuple[Shown, ...], word: str, meaning: str, action: str = "") -> Self:
        """`word`: as in status, CamelCase."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.shown, made.meaning, made.action = shown, meaning, action
        return made


def on(status: ConditionStatus, *types: ConditionType) -> tuple[Shown, ...]:
    """Those conditions, with that status."""
    return tuple(Shown(each, (status,)) for each in types)


_READY, _STALLED, _AVAILABLE = ConditionType.READY, ConditionType.STALLED, ConditionType.AVAILABLE
_SCALING, _METRICS = ConditionType.SCALING_ACTIVE, ConditionType.METRICS_AVAILABLE
_ACTIVE, _BENEFICIAL = ConditionType.SPECULATION_ACTIVE, ConditionType.SPECULATION_BENEFICIAL
_ROUTE = ConditionType.ROUTE_ACCEPTED
_PODS, _LENGTH = ConditionType.PODS_HEALTHY, ConditionType.ACCEPTED_LENGTH_KEPT
_INSTALL = "The operator looks again by itself."


class ServingReason(Reason):
    """Reasons of the conditions on servers, autoscaling and speculation."""

    # Servers
    SERVERS_ANSWER = (on("True", _READY, _AVAILABLE), "ServersAnswer", "Server pods answer.")
    SERVERS_NOT_READY = (
        on("False", _AVAILABLE),
        "ServersNotReady",
        "There are server pods, and none answers; the message has the cause.",
        "See the pod that the message names.",
    )
    NO_SERVERS = (
        (*on("False", _AVAILABLE), *on("Unknown", _SCALING)),
        "NoServers",
        "There are no server pods yet.",
        "See the reason of `Ready`.",
    )
    ROLLING_OUT = (
        on("False", _READY),
        "RollingOut",
        "Not all server pods are of the wanted revision and answer; the message has the cause.",
        "Wait, or see the pod that the message names.",
    )
    REPLICAS_NOT_READY = (
        on("False", _READY),
        "ReplicasNotReady",
        "All server pods are of the wanted revision, which was rolled out before, and fewer than `spec.replicas`"
        " answer: the service scales, or a pod starts again. `Available` says whether any answers.",
        "Wait, or see the pod that the message names.",
    )
    SCALED_TO_ZERO = (
        on("True", _READY),
        "ScaledToZero",
        "`spec.replicas` is 0: no server runs, as asked.",
        "Run `kubectl scale` to serve.",
    )
    PROGRESS_DEADLINE_EXCEEDED = (
        on("True", _STALLED),
        "ProgressDeadlineExceeded",
        "No further server answered within `rollout.progressDeadlineSeconds`; the old revision serves on.",
        "Remove what the message names; the rollout goes on by itself.",
    )
    ROLLED_BACK = (
        (*on("False", _READY), *on("True", _STALLED)),
        "RolledBack",
        "The one before the new revision serves again: that did not answer in time (`rollout.strategy: Replace`), or"
        " its accepted length fell below `speculation.minAcceptedLength`. The message says which.",
        "Change the specification: the same revision is not tried again; after a short accepted length, it is with a"
        " lower minimum.",
    )
    # Pods
    POD_FAILED = (
        on("False", _PODS),
        "PodFailed",
        "The kubelet or the cluster ended a pod, or did not let it begin, such as Evicted, UnexpectedAdmissionError.",
        "See the message, the node that it names, and the node's device plugin.",
    )
    POD_UNSCHEDULABLE = (
        on("False", _PODS),
        "PodUnschedulable",
        "The scheduler finds no node for a pod.",
        "Compare `placement` and requests with the nodes; or wait for the cluster's autoscaler.",
    )
    CLAIM_PENDING = (
        on("False", _PODS),
        "ClaimPending",
        "A pod waits for a PersistentVolumeClaim that has no volume.",
        "Choose a storage class that has the access mode (`storage.cache`), or see the claim's Events.",
    )
    VOLUME_NOT_MOUNTED = (
        on("False", _PODS),
        "VolumeNotMounted",
        "A volume cannot be attached or mounted: it is used on another node, or what it names does not exist.",
        "A volume for pods of several nodes needs access mode ReadWriteMany; else see what the message names.",
    )
    POD_NOT_STARTED = (
        on("False", _PODS),
        "PodNotStarted",
        "The kubelet cannot set up a pod: its network, its devices.",
        "See the message, and the node.",
    )
    POD_NOT_MADE = (
        on("False", _PODS),
        "PodNotMade",
        "A quota, an admission webhook or security constraints let no pod be made.",
        "Set what the message asks for, with `podTemplate`, `jobs` or the Helm value `jobs`.",
    )
    CONTAINER_FAILS = (
        on("False", _PODS),
        "ContainerFails",
        "A container of a pod does not start, or ended with an error.",
        "See the message, and `kubectl logs`.",
    )
    POD_NOT_READY = (
        on("False", _PODS),
        "PodNotReady",
        "Triton answers, and the pod gets no requests: another container of it, or a readiness gate, is not ready.",
        "See the container or the gate that the message names.",
    )
    # Refusals of the API server
    APPLY_REFUSED = (
        on("False", _READY, _SCALING, _ROUTE),
        "ApplyRefused",
        "The API server, or an admission webhook, refused a child; or its name belongs to another owner.",
        "Remove the cause that the message names.",
    )
    LEADER_WORKER_SET_MISSING = (
        on("False", _READY),
        "LeaderWorkerSetMissing",
        "A replica needs several nodes, and LeaderWorkerSet is not installed.",
        f"Install it, or write parallel sizes that one node holds. {_INSTALL}",
    )
    SCALED_OBJECT_MISSING = (
        on("False", _SCALING),
        "ScaledObjectMissing",
        "`autoscaling.source` is KEDA, and KEDA is not installed.",
        f"Install it, or write another source. {_INSTALL}",
    )
    HTTP_ROUTE_MISSING = (
        on("False", _ROUTE),
        "HTTPRouteMissing",
        "`serving.openAI.route` asks for an HTTPRoute, and Gateway API is not installed.",
        f"Install it, or remove `route`. {_INSTALL}",
    )
    INFERENCE_POOL_MISSING = (
        on("False", _ROUTE),
        "InferencePoolMissing",
        "`serving.openAI.inferencePool` is set, and its definition is not installed.",
        f"Install it, or remove `inferencePool`. {_INSTALL}",
    )
    WAITING_FOR_GATEWAY = (
        on("Unknown", _ROUTE),
        "WaitingForGateway",
        "No gateway's controller has set a status on the route, or the pool.",
        "See that the Gateway is there, and that its controller runs and knows the kind.",
    )
    RIGHT_MISSING = (
        (*on("False", ConditionType.RIGHTS_GRANTED, _SCALING, _ROUTE), Shown(_READY, ("False", "Unknown"))),
        "RightMissing",
        "RBAC does not let the operator do what the message names.",
        "Run `helm upgrade`, which renews the rights of the chart, or grant them.",
    )
    WRITTEN_BY_OTHERS = (
        on("False", ConditionType.CHILDREN_KEPT),
        "WrittenByOthers",
        "Something writes a child again each time that its edit is reverted; it is left so for an hour.",
        "Stop what the message names, or ask for the same in the service's spec.",
    )
    RECONCILE_FAILED = (
        (*on("Unknown", _READY), *on("True", _STALLED)),
        "ReconcileFailed",
        "Something keeps the operator from looking at the service, or from acting on it: the API server refuses or"
        " cannot answer for a minute, or the operator has a defect. The other conditions are of before.",
        "See the message, and the operator's log. It tries again by itself.",
    )
    # The autoscaler; else its own reason
    AUTOSCALER_STARTING = (
        on("Unknown", _SCALING),
        "Starting",
        "The autoscaler is being made, or its controller has not set a condition yet.",
    )
    NO_METRICS_SERVER = (
        on("False", _SCALING),
        "NoMetricsServer",
        "KEDA has no source of metrics.",
        "Run the metrics server, set the Helm value `keda.prometheusUrl`, or write `autoscaling.keda.triggers`.",
    )
    NO_AUTOSCALER_REASON = (
        (Shown(_SCALING, ("True", "False", "Unknown")),),
        "NoReason",
        "The autoscaler's condition has no reason.",
        "See the HorizontalPodAutoscaler or ScaledObject.",
    )
    # The metrics server
    METRICS_REPORTED = (on("True", _METRICS), "Reported", "The pods' metrics are read.")
    METRICS_SERVER_UNREACHABLE = (
        on("False", _METRICS),
        "MetricsServerUnreachable",
        "The metrics server has not answered for a minute; figures and replicas stay as they are.",
        "See its pods and the NetworkPolicies between.",
    )
    NO_POD_REPORTS_METRICS = (
        on("False", _METRICS),
        "NoPodReportsMetrics",
        "Server pods have been Ready for two minutes, and the metrics of none can be read.",
        "See the problem that the message names.",
    )
    PODS_STARTING = (
        on("Unknown", _METRICS),
        "PodsStarting",
        "Server pods are Ready, and the metrics of none were read yet; for two minutes that is no problem.",
    )
    NO_READY_PODS = (on("Unknown", _METRICS), "NoReadyPods", "No server pod is Ready, so there are no metrics.")
    WAITING_FOR_METRICS_SERVER = (
        on("Unknown", _METRICS),
        "WaitingForMetricsServer",
        "No report was read since the operator started.",
    )
    NO_REPORT = (on("Unknown", _METRICS), "NoReport", "There is no report of this service yet.")
    # Whether it speculates
    DRAFT_TOKENS_SEEN = (on("True", _ACTIVE), "DraftTokensSeen", "Tokens are drafted; the message has the figures.")
    NO_TRAFFIC = (
        on("Unknown", _ACTIVE, _BENEFICIAL, _LENGTH),
        "NoTraffic",
        "No tokens are generated; figures are of the last traffic.",
    )
    TOO_FEW_TOKENS = (on("Unknown", _ACTIVE, _LENGTH), "TooFewTokens", "Too few tokens were generated to judge.")
    NOT_REPORTED = (on("Unknown", _ACTIVE), "NotReported", "The profile's engine does not report drafted tokens.")
    ADAPTED_TO_ZERO = (
        on("False", _ACTIVE),
        "AdaptedToZero",
        "At this load and acceptance the target alone is faster, and the draft length is 0.",
    )
    ABOVE_SCHEDULE = (
        on("False", _ACTIVE),
        "AboveSchedule",
        "`maxConcurrency` or `draftLenSchedule` drafts nothing at this load.",
    )
    DRAFT_FAILS = (
        on("False", _ACTIVE),
        "DraftFails",
        "The draft engine fails, or is too slow.",
        "See the pods' logs.",
    )
    SWITCHED_OFF = (
        on("False", _ACTIVE),
        "SwitchedOff",
        "The engine stopped drafting by itself, until it starts again.",
        "Restart the pods; lower the threshold, or change the draft.",
    )
    NO_DRAFT_TOKENS = (
        on("False", _ACTIVE),
        "NoDraftTokens",
        "Tokens are generated and none is drafted.",
        "Check `num_draft_tokens` of the requests, then the pods' logs.",
    )
    # What it is worth
    FASTER = (on("True", _BENEFICIAL), "Faster", "Speculation is faster than the target alone.")
    SLOWER = (
        on("False", _BENEFICIAL),
        "Slower",
        "Speculation is slower than the target alone.",
        "Draft less, change the draft, or switch speculation off.",
    )
    NO_CLEAR_DIFFERENCE = (
        on("Unknown", _BENEFICIAL),
        "NoClearDifference",
        "The speed-up is too close to 1 to decide.",
    )
    TOO_FEW_SAMPLES = (
        on("Unknown", _BENEFICIAL),
        "TooFewSamples",
        "The traffic does not show the speed-up yet.",
        "Run the command in the message; or wait, as traffic may show it.",
    )
    BENCHMARK_UNREADABLE = (
        on("Unknown", _BENEFICIAL),
        "BenchmarkUnreadable",
        "The ConfigMap NAME-benchmark has no result of `tandem bench`.",
        "Run `tandem bench --record` again.",
    )
    BENCHMARK_OUTDATED = (
        on("Unknown", _BENEFICIAL),
        "BenchmarkOutdated",
        "The benchmark measured another revision than serves now.",
        "Run `tandem bench --record` again.",
    )
    BENCHMARK_TOO_SHORT = (
        on("Unknown", _BENEFICIAL),
        "BenchmarkTooShort",
        "The benchmark compared too few windows.",
        "Run `tandem bench --record` again, with more `--repeats`.",
    )
    BELOW_MINIMUM_LATENCY = (
        on("False", ConditionType.OBJECTIVES_REACHABLE),
        "BelowMinimumLatency",
        "An objective is below what the models take at their fastest: no number of replicas meets it.",
        "Raise the objective, or choose faster models or GPUs.",
    )
    # Engines that failed
    ENGINE_FAILING = (
        on("False", ConditionType.ENGINE_HEALTHY),
        "EngineFailing",
        "An engine answered with errors, and its server was started again.",
        "Where it comes again: see the engine's error in the message, the node and its GPU.",
    )
    ENGINE_HUNG = (
        on("False", ConditionType.ENGINE_HEALTHY),
        "EngineHung",
        "An engine did not answer any more, and its server was started again.",
        "Where it comes again: see the node and its GPU.",
    )
    ENGINE_ARGUMENTS_REFUSED = (
        on("False", ConditionType.ENGINE_HEALTHY),
        "EngineArgumentsRefused",
        "The image refused the LLM API's arguments in the server's pod, before it loaded the model. The preflight has"
        " no GPU and could not try them (`ArgumentsNotChecked`).",
        "Change the field that the message names, or `runtime.extraLlmArgs`.",
    )


AS_SPECIFIED = (ServingReason.ADAPTED_TO_ZERO, ServingReason.ABOVE_SCHEDULE)
"""Why nothing is drafted where that is what the specification asks for: no Event warns of it."""


class EventReason(Reason):
    """Reasons that Events alone have. The others have those of conditions."""

    NOT_READY = (
        (),
        "NotReady",
        "`Ready` became False; the message has the cause. None is written while `PodsHealthy` has it.",
        "See `kubectl describe sis NAME`.",
    )
    EDIT_REVERTED = (
        (),
        "EditReverted",
        "What somebody wrote into a child was undone; the message has who, and what.",
        "To add it to the server pods, write it in `spec.podTemplate`.",
    )
    ENGINE_FAILED = (
        (),
        "EngineFailed",
        "An engine failed, and its server was started again. One Event a failure.",
        "See the condition `EngineHealthy`.",
    )
