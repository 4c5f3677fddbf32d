"""Combinations of `known_bad_table`: which of them a spec has, and the page that lists them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tandem.api.conditions import SpecReason
from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines.rule import EngineRule, EngineWarn, Refusal
from tandem.engines.tensorrt_llm.arguments import llm_args
from tandem.engines.tensorrt_llm.known_bad_table import TABLE, Case, KnownBad

if TYPE_CHECKING:
    from tandem.engines.tensorrt_llm import TensorRTLLM

_HEAD = """# Combinations that are known to be bad

What TensorRT-LLM takes and then serves wrongly, or does not have, in mode LLMAPI. Generated from
`operator/tandem/engines/tensorrt_llm/known_bad_table.py` by `make generate`. The issues were read in excerpts on
2026-11-26, as of about 2026-09-23. A version is that of a profile's engine, or the newest before it. *Refused*:
`SpecAccepted` is False; *warned*: it is served as asked, and the condition's message says so.

| combination | version | TensorRT-LLM ... | instead | | source |
|---|---|---|---|---|---|
"""


def page() -> str:
    """docs/reference/known-bad.md. Rows that differ in their combination alone are one line."""
    alike = groupby(TABLE, lambda row: replace(row, combination="", when=()))
    return _HEAD + "".join(_line(list(rows)) for _, rows in alike)


def _line(rows: list[KnownBad]) -> str:
    row, combination = rows[0], ", ".join(row.combination for row in rows)
    act, place = "refused" if row.refused else "warned", row.source.removesuffix(".html").rpartition("/")[2]
    return (
        f"| {combination} | {', '.join(row.dialects)} | {row.happens} | {row.instead} | {act}"
        f" | [{place}]({row.source}) |\n"
    )


def found(spec: ServiceSpec, engine: "TensorRTLLM") -> Iterator[KnownBad]:
    """The rows that hold for `spec`, which the other rules accept."""
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    case = Case(spec, llm_args(spec, engine.dialect, folders))
    for row in TABLE:
        if engine.dialect in row.dialects and all(condition(case) for condition in row.when):
            yield row


def _refused(spec: ServiceSpec, engine: "TensorRTLLM") -> Refusal | None:
    row = next((row for row in found(spec, engine) if row.refused), None)
    return Refusal(SpecReason.KNOWN_BAD, row.message(engine.dialect)) if row else None


def _warned(spec: ServiceSpec, engine: "TensorRTLLM") -> str | None:
    texts = [row.message(engine.dialect) for row in found(spec, engine) if not row.refused]
    return "; ".join(texts) or None


RULES: tuple[EngineRule, ...] = (_refused,)
WARNINGS: tuple[EngineWarn, ...] = (_warned,)
