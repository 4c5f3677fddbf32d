"""Tandem's own engine, on CPUs and GPUs: under Tandem's loop, and behind TensorRT-LLM's LLM API (`reference_llm`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine, with_type
from tandem.engines.gpus import GpuPlan, Launch, on_devices, over_nodes
from tandem.engines.own import rules as own_rules
from tandem.engines.request_parameters import BEAMS, DRAWS, Entry, Facts, Outcome
from tandem.engines.tensorrt_llm import LlmApi
from tandem.engines.tensorrt_llm import rules as llm_api_rules
from tandem.engines.tensorrt_llm.dialect import Dialect
from tandem.engines.triton import collects

SOURCE = "/opt/reference/models/tensorrt_llm"
CHECK = "reference_engine.torch_backend.checkpoints"
_NOT_SPLIT = " (splitting one never ran on GPUs)"
_ABSENT = Entry(Outcome.REFUSED, "does not have it")


class _Own(Engine):
    """What it is in both modes."""

    kind = "Tandem"
    one_node = True

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.check, self.why_not_split = (CHECK, _NOT_SPLIT) if profile.gpus else ("", "")

    @property
    def title(self) -> str:
        """It has the version of its image."""
        return f"the engine of profile {self.profile.name}"

    def subject(self, spec: ServiceSpec) -> str:
        """Without the mode, which changes nothing."""
        return f"{self.title} {with_type(spec)}"


class TandemBls(_Own):
    """A Triton model in Python for each of target and draft."""

    mode = Mode.BLS
    rules = (collects, *own_rules.RULES)
    parameters: ClassVar[Mapping[str, Facts]] = {
        "Tandem's engine, mode BLS": Facts("a profile with engine.kind Tandem (reference, torch)", {**DRAWS, **BEAMS})
    }
    source = SOURCE

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.calls = profile.engine.calls or "Together"

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """With a draft model."""
        return (DecodingType.DRAFT_TARGET, DecodingType.NONE)

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """It starts its own ranks."""
        return on_devices(spec, by_mpi=False) if self.profile.gpus else GpuPlan()

    def loads_in_turn(self, spec: ServiceSpec) -> bool:
        """It takes more of its GPU while it loads than later."""
        return self.profile.gpus and spec.draft is not None


class TandemLlmApi(_Own, LlmApi):
    """`reference_llm`: the arguments of TensorRT-LLM 1.3 that mean something to it."""

    rules = (*own_rules.RULES, *llm_api_rules.RULES)
    parameters: ClassVar[Mapping[str, Facts]] = {
        "Tandem's engine, mode LLMAPI": Facts(
            "a profile with engine.kind Tandem (reference, torch)", {"min_p": _ABSENT, "best_of": _ABSENT}
        )
    }
    dialect = Dialect.V1_3

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """With a draft model or n-grams."""
        return (DecodingType.DRAFT_TARGET, DecodingType.NGRAM, DecodingType.NONE)

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """Of one pod."""
        return (
            replace(over_nodes(spec), launch=Launch.SINGLE, world_size=1, nodes=1) if self.profile.gpus else GpuPlan()
        )

    def follows_schedule(self, kind: DecodingType) -> bool:
        """With every type."""
        return True
