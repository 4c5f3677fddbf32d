"""Combinations of `known_bad_table`: which of them a spec has."""

from typing import TYPE_CHECKING

from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines.known_bad import Case, KnownBadTable
from tandem.engines.rule import EngineRule, EngineWarn
from tandem.engines.vllm.arguments import method_of
from tandem.engines.vllm.known_bad_table import TABLE

if TYPE_CHECKING:
    from tandem.engines.vllm import Vllm


def _case(spec: ServiceSpec, engine: "Vllm") -> Case:
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    return Case(spec, engine.arguments(spec, folders), engine.minor, method_of(spec), engine.profile.gpus)


KNOWN_BAD = KnownBadTable(
    "vLLM", TABLE, "on 2026-11-28: the code of the releases, and issues in excerpts as of about 2026-09-23", _case
)
RULES: tuple[EngineRule, ...] = (KNOWN_BAD.refused,)
WARNINGS: tuple[EngineWarn, ...] = (KNOWN_BAD.warned,)
