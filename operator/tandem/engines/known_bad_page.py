"""docs/reference/known-bad.md, from the engines' tables of known-bad combinations. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from tandem.engines.known_bad import KnownBad, KnownBadTable
from tandem.engines.tensorrt_llm.known_bad import KNOWN_BAD as TENSORRT_LLM
from tandem.engines.vllm.known_bad import KNOWN_BAD as VLLM

TABLES: Mapping[str, KnownBadTable] = {"tensorrt_llm": TENSORRT_LLM, "vllm": VLLM}
"""By their packages in `tandem.engines`."""
_HEAD = """# Combinations that are known to be bad

What engines take and then serve wrongly, or do not have, in mode LLMAPI. Generated from the files
`known_bad_table.py` in `operator/tandem/engines` by `make generate`. A version is that of a profile's engine, or the
newest before it. *Refused*: `SpecAccepted` is False; *warned*: it is served as asked, and the condition's message
says so.
"""
_COLUMNS = "| combination | version | {} ... | instead | | source |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(part for package, table in TABLES.items() for part in _section(package, table))


def _section(package: str, table: KnownBadTable) -> Iterator[str]:
    """Rows that differ only in their combination are one line."""
    yield f"\n## {table.engine}\n\nOf `{package}/known_bad_table.py`. The sources were read {table.read}.\n\n"
    yield _COLUMNS.format(table.engine)
    alike = groupby(table.rows, lambda row: replace(row, combination="", when=()))
    yield from (_line(list(rows)) for _, rows in alike)


def _line(rows: list[KnownBad]) -> str:
    row, combination = rows[0], ", ".join(row.combination for row in rows)
    act, place = "refused" if row.refused else "warned", row.source.removesuffix(".html").rpartition("/")[2]
    return (
        f"| {combination} | {_versions(row.versions)} | {row.happens} | {row.instead} | {act}"
        f" | [{place}]({row.source}) |\n"
    )


def _versions(versions: tuple[str, ...]) -> str:
    return ", ".join(versions) if len(versions) <= 3 else f"{versions[0]} to {versions[-1]}"
