"""Combinations that an engine takes and then serves wrongly, or does not have: what a row of such a table is, and
which rows a spec has. The tables are the engines' own (`known_bad_table.py` of each). Pure.

A row reads the arguments as the image gets them, whichever field of the resource wrote them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tandem.api.conditions import SpecReason
from tandem.api.types import ServiceSpec
from tandem.engines.rule import Refusal


@dataclass(frozen=True)
class Case:
    """A spec of mode LLMAPI, and the arguments that the image gets of it."""

    spec: ServiceSpec
    arguments: Mapping[str, Any]
    version: str
    """Of the engine, as the table's rows name versions."""
    kind: str
    """What drafts, as the engine spells it; empty without speculation."""
    gpus: bool = True
    """Whether it runs on GPUs."""

    def value(self, path: str) -> Any:
        """The argument at a path such as `kv_cache_config.max_tokens`; None where it is absent."""
        found: Any = self.arguments
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


Condition = Callable[[Case], bool]


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """A row of a table; it holds where all of `when` do."""

    combination: str
    """Arguments, or fields of the resource, that make it."""
    versions: tuple[str, ...]
    when: tuple[Condition, ...]
    happens: str
    """What the engine does then; its subject is left out."""
    instead: str
    """What to write."""
    source: str
    """Address of the issue, the pull request, the file or the reference page."""
    refused: bool = False
    """Whether the service is refused; else it is warned about."""

    def message(self, engine: str) -> str:
        """For people; `engine`: its name and version."""
        return f"{self.combination}: {engine} {self.happens} ({self.source}): {self.instead}"


@dataclass(frozen=True)
class KnownBadTable:
    """The table of an engine."""

    engine: str
    """Its name."""
    rows: tuple[KnownBad, ...]
    read: str
    """When the sources were read, for the page."""
    case: Callable[[ServiceSpec, Any], Case]
    """That of a spec and the engine's object."""

    def found(self, case: Case) -> Iterator[KnownBad]:
        """The rows that hold for a spec, which the other rules accept."""
        for row in self.rows:
            if case.version in row.versions and all(condition(case) for condition in row.when):
                yield row

    def refused(self, spec: ServiceSpec, engine: Any) -> Refusal | None:
        """A rule: the first row that refuses it."""
        case = self.case(spec, engine)
        row = next((row for row in self.found(case) if row.refused), None)
        return Refusal(SpecReason.KNOWN_BAD, row.message(f"{self.engine} {case.version}")) if row else None

    def warned(self, spec: ServiceSpec, engine: Any) -> str | None:
        """A warning: all others."""
        case = self.case(spec, engine)
        rows = [row for row in self.found(case) if not row.refused]
        return "; ".join(row.message(f"{self.engine} {case.version}") for row in rows) or None


def has(path: str, test: Callable[[Any], bool] = bool) -> Condition:
    """Whether the argument at `path`, None where it is absent, passes; by default: is neither absent, false nor 0."""
    return lambda case: test(case.value(path))


def is_kind(*names: str) -> Condition:
    """Whether one of these drafts."""
    return lambda case: case.kind in names


def any_of(*conditions: Condition) -> Condition:
    """Whether one of these holds."""
    return lambda case: any(condition(case) for condition in conditions)


def unless(condition: Condition) -> Condition:
    """Whether it does not hold."""
    return lambda case: not condition(case)


def speculates(case: Case) -> bool:
    """Whether anything drafts."""
    return bool(case.kind)


def on_cpus(case: Case) -> bool:
    """Whether it runs on CPUs."""
    return not case.gpus


def over_stages(case: Case) -> bool:
    """Whether the target has pipeline stages."""
    return case.spec.target.pipeline_parallel_size > 1
