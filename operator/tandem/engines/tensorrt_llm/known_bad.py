"""Combinations of `known_bad_table`: which of them a spec has."""

from typing import TYPE_CHECKING

from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines.known_bad import Case, KnownBadTable
from tandem.engines.rule import EngineRule, EngineWarn
from tandem.engines.tensorrt_llm.arguments import llm_args
from tandem.engines.tensorrt_llm.known_bad_table import TABLE

if TYPE_CHECKING:
    from tandem.engines.tensorrt_llm import TensorRTLLM


def _case(spec: ServiceSpec, engine: "TensorRTLLM") -> Case:
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    arguments = llm_args(spec, engine.dialect, folders)
    return Case(
        spec, arguments, engine.dialect, (arguments.get("speculative_config") or {}).get("decoding_type") or ""
    )


KNOWN_BAD = KnownBadTable(
    "TensorRT-LLM",
    TABLE,
    "in excerpts on 2026-11-26, as of about 2026-09-23; their states may have moved since",
    _case,
)
RULES: tuple[EngineRule, ...] = (KNOWN_BAD.refused,)
WARNINGS: tuple[EngineWarn, ...] = (KNOWN_BAD.warned,)
