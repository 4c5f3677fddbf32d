"""What an engine is, and what the objects of all of them share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tandem.api import ports
from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.gpus import GpuPlan
from tandem.engines.request_parameters import Facts, refused

if TYPE_CHECKING:
    from tandem.engines.rule import EngineRule, EngineWarn
    from tandem.engines.tensorrt_engines.builds import Build


_SSH = "ssh"


@dataclass(frozen=True)
class Worker:
    """What the pods of a group run beside the leader: arguments of the image's entry point, and ports by name."""

    arguments: tuple[str, ...]
    ports: Mapping[str, int]

    @property
    def by_ssh(self) -> bool:
        """Whether the leader starts its ranks by ssh, so that the group needs a key pair."""
        return _SSH in self.ports


class Engine(ABC):
    """What runs the models of a profile's services, in one mode. The defaults are for an engine that takes
    checkpoints, runs in one process, and builds nothing."""

    kind: ClassVar[str]
    """`engine.kind` of its profiles."""
    mode: ClassVar[Mode]
    """Mode that it is for: who runs the loop."""
    runs: ClassVar[bool] = True
    """Whether there is one; false: the profile's engine does not run the mode."""
    rules: ClassVar[Sequence["EngineRule"]] = ()
    """Rules that a spec may break, beside those for all engines."""
    warnings: ClassVar[Sequence["EngineWarn"]] = ()
    """Likewise, what the user should know."""
    parameters: ClassVar[Mapping[str, Facts]] = {}
    """What becomes of parameters of requests, by the kinds of it that differ; the names are titles in the docs."""
    builds_engines: ClassVar[bool] = False
    """Whether models become TensorRT engines before they are served."""
    passes_logits: ClassVar[bool] = False
    """Mode BLS: whether engines can hand logits to each other (`acceptance.fastLogits`)."""
    instead: ClassVar[Mapping[DecodingType, str]] = {}
    """Types that it does not run, each with what to know and to write instead."""
    least_compute_capability: ClassVar[tuple[int, int]] = (8, 0)
    """Of the GPUs that it runs on. Ampere: what TensorRT-LLM's speculative decoding needs (support matrix of its
    guides)."""
    own_environment: ClassVar[tuple[str, ...]] = ()
    """Variables that users must not set, beside those of `environment`."""
    worker: ClassVar[Worker] = Worker(("worker",), {_SSH: ports.SSH})
    """Of groups; as it is here, the leader starts the ranks by ssh."""
    one_node: ClassVar[bool] = False
    """Whether a replica is one pod, whatever it needs."""
    judges_arguments: ClassVar[bool] = False
    """Whether something of it is judged before servers start, which the condition EnginesReady shows."""
    counts_draft_tokens: bool = True
    """Whether it reports how many tokens it drafted; without, acceptance rates are Unknown."""
    why_not_split: str = ""
    """Why a model must not be split further than the profile says, where there is more to say."""
    calls: str = "Single"
    """Mode BLS: how it takes the sequences that run at once; see `EngineSettings.calls`."""
    source: str = ""
    """Mode BLS: folder in the image with the Triton model (`1/model.py`) that is the engine; empty: Triton has a
    backend for it."""
    check: str = ""
    """Python module in the image that says which checkpoints it runs, and what they take of a GPU's memory (`check`
    and `memory` of reference_engine.torch_backend.checkpoints); the preflight asks it. Empty: none."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.profile == getattr(other, "profile", None)

    def __hash__(self) -> int:
        return hash((type(self), self.profile.name))

    @classmethod
    def lacks(cls, version: str) -> str:
        """Why that version of it cannot run this mode; empty where it can."""
        return ""

    @property
    @abstractmethod
    def decoding_types(self) -> Sequence[DecodingType]:
        """Those that it runs."""

    @property
    def title(self) -> str:
        """Its name in messages, such as `TensorRT-LLM 1.2.1`."""
        return f"{self.kind} {self.profile.engine.version}".rstrip()

    @property
    def oldest_gpu(self) -> int | None:
        """Major compute capability that its GPUs have at least; None: it runs on CPUs."""
        return self.least_compute_capability[0] if self.profile.gpus else None

    @property
    def version(self) -> str:
        """`engine.version` of its profile; empty: not known."""
        return self.profile.engine.version

    def subject(self, spec: ServiceSpec) -> str:
        """Its name in messages about parameters of requests, with what they depend on."""
        return f"{self.title} (mode {self.mode}, {with_type(spec)})"

    @abstractmethod
    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """Devices and processes of one replica. What is impossible is refused by rules, not here."""

    def command(self, plan: GpuPlan, server: Sequence[str], engines: Sequence[str], env: Iterable[str]) -> list[str]:
        """The command that starts all processes of a replica, where `server` starts one. `engines`: models that MPI
        ranks other than the first load; `env`: names of the server's variables."""
        return list(server)

    def environment(self, plan: GpuPlan) -> dict[str, str]:
        """Variables that its processes need, beside `engine.env` of the profile."""
        return {}

    def loads_in_turn(self, spec: ServiceSpec) -> bool:
        """Whether its models must load one after the other."""
        return False

    def built_roles(self, spec: ServiceSpec) -> list[Role]:
        """Models whose TensorRT engine nobody brought along."""
        return []

    def builds(self, spec: ServiceSpec, image: str, folders: Mapping[Role, str]) -> dict[Role, "Build"]:
        """How these are built, by the role of the model."""
        return {}

    def serve_arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any] | None:
        """Those for `trtllm-serve --config`; None: it is not for such tools."""
        return None

    def arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
        """Mode LLMAPI: the arguments that it is loaded with, as plain data. Mode BLS: none."""
        return {}

    def switches_off(self, spec: ServiceSpec) -> str:
        """Name of the argument by which it stops drafting for good; empty where none is written."""
        return ""

    def facts(self, spec: ServiceSpec, arguments: Mapping[str, Any]) -> Facts:
        """What is known of parameters of requests; `arguments`: those of `arguments`."""
        return next(iter(self.parameters.values()), Facts(""))

    def refused_parameters(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, str]:
        """Parameters of requests that would have no effect, and why and what to do: a clause behind "NAME is not
        supported: "."""
        arguments = self.arguments(spec, folders)
        return refused(self.facts(spec, arguments), self.mode, self.subject(spec), arguments)


def with_type(spec: ServiceSpec) -> str:
    """How a spec drafts, for messages."""
    kind = spec.speculation.decoding_type
    return "without speculation" if kind is DecodingType.NONE else f"with decodingType {kind}"
