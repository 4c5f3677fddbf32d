"""TensorRT engines, which TensorRT-LLM's Triton backend runs, under Tandem's loop."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine
from tandem.engines.gpus import GpuPlan, on_devices
from tandem.engines.request_parameters import Facts
from tandem.engines.tensorrt_engines import ranks
from tandem.engines.tensorrt_engines import rules as engine_rules
from tandem.engines.tensorrt_engines.builds import Build, builds, built_roles
from tandem.engines.tensorrt_engines.parameters import TABLE, facts_of
from tandem.engines.tensorrt_llm.dialect import Dialect, dialect_of


class TensorRTEngines(Engine):
    """Up to TensorRT-LLM 1.2: later versions have no engines."""

    kind = "TensorRT-LLM"
    mode = Mode.BLS
    rules = engine_rules.RULES
    warnings = engine_rules.WARNINGS
    parameters = TABLE
    builds_engines = True
    passes_logits = True
    own_environment = ranks.VARIABLES
    one_node = True
    judges_arguments = True

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.calls = profile.engine.calls or "Collected"

    @classmethod
    def lacks(cls, version: str) -> str:
        """Why that version has no engines; empty where it has."""
        if dialect_of(version) is Dialect.V1_2:
            return ""
        return f"Tandem builds TensorRT engines with TensorRT-LLM 1.2, and {version or 'no version'} is written"

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """With a draft model, or in the engine."""
        return (DecodingType.DRAFT_TARGET, DecodingType.MEDUSA, DecodingType.LOOKAHEAD, DecodingType.NONE)

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """MPI starts their ranks."""
        return on_devices(spec, by_mpi=True) if self.profile.gpus else GpuPlan()

    def command(self, plan: GpuPlan, server: Sequence[str], engines: Sequence[str], env: Iterable[str]) -> list[str]:
        """One server, or mpirun and a server for each rank."""
        return ranks.processes(plan, server, engines)

    def environment(self, plan: GpuPlan) -> dict[str, str]:
        """What makes the backend an orchestrator."""
        return ranks.environment(plan)

    def loads_in_turn(self, spec: ServiceSpec) -> bool:
        """While one of two is loading, what is free on its GPU cannot be known."""
        return len(self.gpu_plan(spec).ranks) > 1

    def built_roles(self, spec: ServiceSpec) -> list[Role]:
        """Models whose engine must be built."""
        return built_roles(spec)

    def builds(self, spec: ServiceSpec, image: str, folders: Mapping[Role, str]) -> dict[Role, Build]:
        """How they are built."""
        return builds(spec, image, folders)

    def facts(self, spec: ServiceSpec, arguments: Mapping[str, Any]) -> Facts:
        """By decoding type."""
        return facts_of(spec.speculation.decoding_type)
