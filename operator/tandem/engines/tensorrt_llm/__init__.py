"""TensorRT-LLM's LLM API: it drafts and verifies by itself."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tandem.api.decoding import DecodingType, Mode
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine
from tandem.engines.extra_arguments import with_defaults
from tandem.engines.gpus import GpuPlan, over_nodes
from tandem.engines.request_parameters import Facts, with_switch
from tandem.engines.tensorrt_llm import known_bad
from tandem.engines.tensorrt_llm import rules as llm_api
from tandem.engines.tensorrt_llm.arguments import llm_args
from tandem.engines.tensorrt_llm.dialect import Dialect, dialect_of
from tandem.engines.tensorrt_llm.group import over_the_group
from tandem.engines.tensorrt_llm.parameters import TABLE, facts_of


class LlmApi(Engine):
    """An engine with the arguments of `tensorrt_llm.LLM`."""

    mode = Mode.LLMAPI
    judges_arguments = True
    rules = llm_api.RULES
    warnings = llm_api.WARNINGS
    dialect: Dialect
    """In which it takes its arguments."""

    def follows_schedule(self, kind: DecodingType) -> bool:
        """Whether it follows `draftLenSchedule` with a type."""
        return kind in self.dialect.facts.follow_schedule

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        """Of target and draft on the same GPUs, over several nodes where they must be."""
        return over_nodes(spec) if self.profile.gpus else GpuPlan()

    def serve_arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any] | None:
        """Those of `LLM`, with the switch without which it would drop parameters of requests."""
        written = llm_args(spec, self.dialect, folders)
        return with_switch(self.facts(spec, written), written)

    def arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
        """The same; those of the profile come last."""
        return with_defaults(self.serve_arguments(spec, folders) or {}, self.profile.engine.parameters)


class TensorRTLLM(LlmApi):
    """TensorRT-LLM's own."""

    kind = "TensorRT-LLM"
    rules = (*llm_api.RULES, *known_bad.RULES)
    warnings = (*llm_api.WARNINGS, *known_bad.WARNINGS)
    parameters = TABLE

    @classmethod
    def lacks(cls, version: str) -> str:
        """Why that version cannot be run; empty where it can."""
        known = dialect_of(version)
        return "" if known else f"Tandem runs TensorRT-LLM 1.2 and newer, and {version or 'no version'} is written"

    @cached_property
    def dialect(self) -> Dialect:  # type: ignore[override] # of the version
        """That of its version."""
        found = dialect_of(self.version)
        if found is None:
            raise ValueError(self.lacks(self.version))
        return found

    @property
    def counts_draft_tokens(self) -> bool:  # type: ignore[override] # of the version
        """By version."""
        return self.dialect.facts.counts_draft_tokens

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        """By version."""
        return self.dialect.facts.decoding_types

    def command(self, plan: GpuPlan, server: Sequence[str], engines: Sequence[str], env: Iterable[str]) -> list[str]:
        """Over several nodes the leader's mpirun starts all ranks."""
        return over_the_group(plan, server, env) if plan.nodes > 1 else list(server)

    def switches_off(self, spec: ServiceSpec) -> str:
        """By a threshold of acceptance."""
        return llm_api.switches_off(spec)

    def facts(self, spec: ServiceSpec, arguments: Mapping[str, Any]) -> Facts:
        """By version and drafter."""
        return facts_of(self.dialect, arguments)
