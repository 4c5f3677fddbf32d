"""The resource itself: spec, rules between its parts, and the object."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError

from tandem.api import ports
from tandem.api.bounds import REPLICAS
from tandem.api.decoding import DecodingType, DraftKind, Mode, listed
from tandem.api.lenient import refused, understood
from tandem.api.types.autoscaling import Autoscaling
from tandem.api.types.base import Model, Name, Passthrough, Rule
from tandem.api.types.gateway import InferencePool, Route
from tandem.api.types.model import Draft, Target
from tandem.api.types.placement import JobTemplate, Placement, PodTemplate
from tandem.api.types.rollout import Rollout
from tandem.api.types.speculation import Speculation, has_type
from tandem.api.types.status import ServiceStatus


class Runtime(Model):
    """The serving stack."""

    mode: Mode
    """LLMAPI: an engine that drafts by itself (TensorRT-LLM's LLM API, vLLM) inside one Triton model. BLS: draft and
    target as two Triton models with Tandem's batched, streaming speculative BLS over them. Never guessed."""
    profile: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    """Name of a profile of the operator's settings: image, versions and abilities. Upgrading a service is
    naming another profile."""
    image: Annotated[str, StringConstraints(max_length=512)] = ""
    """Container image that replaces the profile's."""
    extra_llm_args: Passthrough = Field(default_factory=dict)
    """LLMAPI: further arguments of the engine, as it spells them: those of tensorrt_llm.LLM (what
    `trtllm-serve --config` takes), or of vLLM's AsyncEngineArgs. What the resource itself decides is refused here."""


class Access(Model):
    """Who may connect."""

    sources: Annotated[list[Passthrough], Field(max_length=32, alias="from")] = Field(default_factory=list)
    """NetworkPolicy peers that may reach the serving ports. Empty: those of the operator's settings (`clientPeers`);
    without any there either, no NetworkPolicy: everybody may."""


ServedModelName = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/:@+-]*[A-Za-z0-9])?$")
]


ToolCalls = Literal["Hermes", "Llama3Json", "Mistral"]


Marker = Annotated[str, StringConstraints(min_length=2, max_length=64, pattern=r"^[^\s\x24]+$")]


class Thinking(Model):
    """Between which markers the target writes what it thinks before it answers."""

    cel = (Rule("self.begin != self.end", "serving.openAI.thinking.begin and end must differ: write both markers"),)
    begin: Marker = "<think>"
    """What stands before a thought. The chat template may write it, at the prompt's end."""
    end: Marker = "</think>"
    """What stands after a thought."""


class OpenAi(Model):
    """OpenAI's HTTP API in front of the models (docs/reference/openai.md)."""

    cel = (
        Rule(
            f"!has(self.port) || !(self.port in {list(ports.SERVER.values())})",
            f"serving.openAI.port must be another than Triton's {', '.join(map(str, ports.SERVER.values()))}",
        ),
        Rule(
            "self.enabled || !(has(self.route) || has(self.inferencePool))",
            "serving.openAI.route and inferencePool lead to the endpoint: remove them, or enabled: false",
        ),
    )
    enabled: bool = True
    """Whether each server pod has the endpoint, in a container of its own."""
    port: Annotated[int, Field(ge=1, le=65535)] = ports.OPENAI
    """Port of the Service; another one rolls nothing out."""
    served_model_name: ServedModelName | None = None
    """Name of the model in requests, such as meta-llama/Llama-3.3-70B-Instruct; absent: the service's name."""
    api_key_secret: Name | None = None
    """Secret of this namespace, of which each line of each key is an API key. Absent: whoever reaches the port may
    ask. A change holds as soon as the kubelet has brought it, within two minutes."""
    tls_secret: Name | None = None
    """Secret of type kubernetes.io/tls; absent: plain HTTP. A renewed certificate is loaded without a restart."""
    tool_calls: ToolCalls | None = None
    """How the target writes calls of tools, which requests with `tools` need. Hermes: Qwen 2.5 and 3, Hermes 2 and 3.
    Llama3Json: Llama 3.1 to 3.3. Mistral: Mistral's models. Absent: such requests are refused."""
    thinking: Thinking | None = None
    """Of a target that thinks before it answers: no call of a tool and no stop word inside a thought counts. `{}`
    stands for <think> and </think>, as DeepSeek-R1 and Qwen 3 write them. Absent: all of the text is the answer."""
    max_body_mib: Annotated[int, Field(ge=1, le=64)] = Field(default=4, alias="maxBodyMiB")
    """Largest body of a request, in MiB. `requestTimeoutSeconds` limits its time."""
    route: Route | None = None
    """An HTTPRoute of Gateway API to the endpoint; it rolls nothing out. Absent: none."""
    inference_pool: InferencePool | None = None
    """An InferencePool of the server pods, for gateways with an endpoint picker; it rolls nothing out. Absent:
    none."""
    resources: Passthrough | None = None
    """Requests and limits of the endpoint's container, as in a Container; absent: 100m CPU and 256Mi, at most 1Gi."""


class Serving(Model):
    """Limits of each replica's server."""

    cel = (
        # 0.1 is no `minimum` of the schema: for whole numbers the API server rounds it down, and takes 0.
        Rule(
            "!has(self.queueTimeoutSeconds) || (self.queueTimeoutSeconds >= 0.1"
            " && self.queueTimeoutSeconds < double(self.requestTimeoutSeconds))",
            "serving.queueTimeoutSeconds must be at least 0.1, and below requestTimeoutSeconds, which ends the"
            " request first: write such a time, or remove it",
        ),
    )
    max_batch_size: Annotated[int, Field(ge=1, le=1024)] = 16
    """Sequences that share a step of the engines. A replica runs as many at once, or twice as many where draft and
    target are on GPUs of their own (one half drafts while the other is verified); mode BLS: 64 at most. Further
    requests wait."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Longest time that a request may take; pods that stop finish their streams within it."""
    queue_timeout_seconds: float | None = None
    """BLS: a request that waited so long for a place is refused with UNAVAILABLE, so that those behind it are in
    time. For a gateway that sends it to another replica, or clients that come later; a little less than
    `objectives.timeToFirstToken`. To the autoscaler refused requests are demand. Absent: requests wait."""
    access: Access = Field(default_factory=Access, json_schema_extra={"default": {}})
    """Who may connect."""
    open_ai: OpenAi = Field(default_factory=OpenAi, alias="openAI", json_schema_extra={"default": {}})
    """OpenAI's HTTP API in front of the models."""
    log_verbose: Annotated[int, Field(ge=1, le=9)] | None = None
    """Level of Triton's verbose log (`--log-verbose`), which names requests and tensors; absent: none."""


AccessMode = Literal["ReadWriteOnce", "ReadWriteMany"]


class Cache(Model):
    """The volume that holds downloaded models and built engines."""

    cel = (
        Rule(
            "!(has(self.claimName) && has(self.storageClassName))",
            "cache.claimName is a claim that exists: remove storageClassName, or claimName to have one made",
        ),
    )
    claim_name: Name | None = None
    """A PersistentVolumeClaim that exists; absent: `tandem-cache`, shared by the namespace's services, is made."""
    size: Annotated[str, StringConstraints(max_length=32, pattern=r"^[1-9][0-9]*(Gi|Ti|G|T)$")] = "500Gi"
    """Size of a claim that is made."""
    storage_class_name: Name | None = None
    """Storage class of a claim that is made; absent: the cluster's default."""
    access_modes: Annotated[list[AccessMode], Field(min_length=1, max_length=2)] = Field(default=["ReadWriteMany"])
    """Access modes of a claim that is made. ReadWriteOnce ties all pods that use it to one node."""


class Storage(Model):
    """Where models and engines are kept."""

    cache: Cache = Field(default_factory=Cache, json_schema_extra={"default": {}})
    """The volume; no service owns it, and equal content is kept once for all of the namespace. Deleting a
    service deletes nothing in it; `tandem cache prune` removes what no service refers to."""


def _is(kinds: list[DecodingType]) -> str:
    return has_type(kinds, "self.speculation")


_BY_MODEL = DecodingType.of_draft(DraftKind.MODEL)
_OF_BLS = DecodingType.of_mode(Mode.BLS)
_IN_ENGINE = [kind for kind in DecodingType if kind.traits.in_engine]
_NEEDS_DRAFT = (
    f"({_is(DecodingType.of_draft(DraftKind.MODEL, DraftKind.HEADS))}"
    " || (has(self.speculation.custom) && self.speculation.custom.needsDraft))"
)
_MAY_DRAFT = f"({_NEEDS_DRAFT} || {_is(DecodingType.of_draft(DraftKind.OPTIONAL_HEADS))})"
_LLMAPI = "(self.runtime.mode == 'LLMAPI')"
_BLS = "(self.runtime.mode == 'BLS')"


class ServiceSpec(Model):
    """What the user asks for."""

    cel = (
        Rule(
            f"!{_NEEDS_DRAFT} || has(self.draft)",
            "this decodingType needs a draft model: write spec.draft.model.uri,"
            " or speculation.decodingType: None to serve the target alone",
        ),
        Rule(
            f"{_MAY_DRAFT} || !has(self.draft)",
            "this decodingType takes no draft model: remove spec.draft,"
            " or write speculation.decodingType: DraftTarget",
        ),
        Rule(
            f"!{_BLS} || {_is(_OF_BLS)}",
            f"mode BLS runs decodingType {listed(_OF_BLS, 'or')}: write one of them, or runtime.mode: LLMAPI",
        ),
        Rule(
            f"!{_LLMAPI} || !({_is(_IN_ENGINE)})",
            f"decodingType {listed(_IN_ENGINE, 'or')} is for TensorRT engines: write runtime.mode: BLS, or another"
            " decodingType",
        ),
        Rule(
            f"!{_LLMAPI} || self.placement.strategy == 'Shared'",
            "mode LLMAPI runs draft and target on the same GPUs: write placement.strategy: Shared,"
            " or runtime.mode: BLS",
        ),
        Rule(
            f"!{_LLMAPI} || !has(self.draft) || (self.draft.dtype == 'auto' && !has(self.draft.kvCache))",
            "mode LLMAPI builds the draft in the target's own type and memory: remove draft.dtype and draft.kvCache,"
            " or write runtime.mode: BLS",
        ),
        Rule(
            f"!{_LLMAPI} || !(has(self.target.engine) || (has(self.draft) && has(self.draft.engine)))",
            "mode LLMAPI runs checkpoints, not TensorRT engines: remove engine, or write runtime.mode: BLS",
        ),
        Rule(
            f"!{_LLMAPI} || !has(self.serving.queueTimeoutSeconds)",
            "serving.queueTimeoutSeconds is for mode BLS (in mode LLMAPI the engine has a line of its own): remove"
            " it, or write runtime.mode: BLS",
        ),
        Rule(
            f"!{_LLMAPI} || self.speculation.acceptance.method == 'TokenMatch'",
            "acceptance.method Logits is for mode BLS: write method: TokenMatch",
        ),
        Rule(
            f"self.speculation.acceptance.method == 'TokenMatch' || {_is(_BY_MODEL)}",
            f"acceptance.method Logits compares a draft model's logits: write decodingType:"
            f" {listed(_BY_MODEL, 'or')}, or method: TokenMatch",
        ),
        Rule(
            f"!{_BLS} || !(has(self.speculation.maxConcurrency) || has(self.speculation.draftLenSchedule))",
            "maxConcurrency and draftLenSchedule are for mode LLMAPI: in mode BLS use speculation.adaptive",
        ),
        Rule(
            "self.speculation.decodingType != 'None'"
            " || !(has(self.speculation.maxConcurrency) || has(self.speculation.draftLenSchedule))",
            "without speculation there is no draft length: remove maxConcurrency and draftLenSchedule",
        ),
        Rule(
            f"!{_BLS} || !has(self.runtime.extraLlmArgs)",
            "runtime.extraLlmArgs is for mode LLMAPI: remove it",
        ),
        Rule(
            "self.placement.strategy == 'Shared' || has(self.draft)",
            "placement.strategy Separate is for a draft model on GPUs of its own: write strategy: Shared",
        ),
    )
    runtime: Runtime
    """The serving stack."""
    target: Target
    """The large model, whose output it is."""
    draft: Draft | None = None
    """The small model, or heads, that guess tokens; exactly when decodingType needs one."""
    speculation: Speculation
    """How tokens are guessed and accepted."""
    placement: Placement = Field(default_factory=Placement, json_schema_extra={"default": {}})
    """Where the pods run."""
    serving: Serving = Field(default_factory=Serving, json_schema_extra={"default": {}})
    """Limits of each replica's server."""
    storage: Storage = Field(default_factory=Storage, json_schema_extra={"default": {}})
    """Where downloaded models and built engines are kept."""
    replicas: Annotated[int, Field(ge=0, le=REPLICAS)] = 1
    """Replicas of the server. An autoscaler, or `kubectl scale`, writes it through /scale; the operator
    never decides it. In git, leave it out where `autoscaling` is set."""
    autoscaling: Autoscaling | None = None
    """Lets an autoscaler decide the replicas. Switching it on or off keeps the current number."""
    rollout: Rollout = Field(default_factory=Rollout, json_schema_extra={"default": {}})
    """How a new revision takes the place of the one that serves."""
    pod_template: PodTemplate | None = None
    """What you add to the server pods."""
    jobs: JobTemplate | None = None
    """What you add to the pods of Jobs, over podTemplate and the administrator's defaults (the Helm value `jobs`). It
    rolls nothing out."""


_SOMETHING: dict[str, Any] = {
    "runtime": {"mode": "BLS", "profile": "unknown"},
    "target": {"model": {"uri": "file:///unknown"}},
    "draft": None,
    "speculation": {"decodingType": "None"},
}


def _known(status: object) -> object:
    """A status without what a newer operator wrote into it: it keeps no specification from being acted on."""
    return (understood(ServiceStatus, status) or {}) if isinstance(status, dict) else status


class SpeculativeInferenceService(Model):
    """A large target model served with speculative decoding on NVIDIA Triton: a draft guesses tokens,
    the target verifies them in one pass."""

    cel = (
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",
            "metadata.name must be a DNS-1035 label of at most 40 characters (children add suffixes):"
            " lower-case letters, digits and '-', starting with a letter",
        ),
    )
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: ServiceSpec
    """What the user asks for."""
    # Without it kstatus takes a service that no operator has looked at for current. Flux does likewise.
    status: Annotated[ServiceStatus, BeforeValidator(_known)] = Field(
        default_factory=ServiceStatus, json_schema_extra={"default": {"observedGeneration": -1}}
    )
    """What the operator observed."""

    @classmethod
    def read(cls, manifest: dict[str, Any]) -> tuple[Self, str]:
        """The service, and what of its spec is not understood, for people; empty: all is. Of such a spec what is
        understood is there, with something in the place of what must be there, and as many replicas as run: it is not
        to be rendered."""
        try:
            return cls.model_validate(manifest), ""
        except ValidationError as error:
            raw = manifest.get("spec")
            raw = raw if isinstance(raw, dict) else {}
            spec = understood(ServiceSpec, raw) or understood(ServiceSpec, raw | _SOMETHING)
            of = {"metadata": manifest["metadata"], "status": manifest.get("status", {})}
            service = cls.model_validate({**of, "spec": spec or _SOMETHING})
            if "replicas" in raw and "replicas" not in service.spec.model_fields_set:
                run = service.spec.model_copy(update={"replicas": service.status.replicas or 1})
                service = service.model_copy(update={"spec": run})
            return service, refused(error)

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        """metadata.uid; empty for a manifest that was never applied."""
        return str(self.metadata.get("uid", ""))

    @property
    def generation(self) -> int:
        """metadata.generation; 0 for a manifest that was never applied."""
        return int(self.metadata.get("generation", 0))
