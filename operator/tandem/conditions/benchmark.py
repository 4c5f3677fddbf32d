"""What `tandem bench --record` measured of a service, in its ConfigMap `NAME-benchmark`. Pure.

Everybody who may edit ConfigMaps in the namespace can write it: it is not trusted. A result is of one revision, and
not valid for another.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tandem import names
from tandem.api.conditions import ServingReason
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Wire
from tandem.children.benchmark import KEY
from tandem.metrics.report import Worth
from tandem.plural import counted
from tandem.rollout.observed import Observed

MOST_BYTES = 16 << 10
LEAST_PAIRS = 3
"""Pairs of windows below which there is no result."""

# A window may be without a token on one side, and have a single one on the other.
Speedup = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


def _as_in_status(at: datetime) -> datetime:
    """A time as status spells it, or the API server takes no status with it: in UTC, its year of four digits."""
    if not 1000 < at.year < 9999:
        raise ValueError("no benchmark is of that year")
    return at.astimezone(UTC)


Time = Annotated[AwareDatetime, AfterValidator(_as_in_status)]


class RecordedLevel(Wire):
    """One load."""

    streams: Annotated[int, Field(ge=1, le=100_000)]
    """Requests at once."""
    speedup: Speedup
    """Tokens a second relative to those of the target alone: the median over pairs of windows."""
    low: Speedup
    """The pairs lie between `low` ..."""
    high: Speedup
    """... and `high`."""
    pairs: Annotated[int, Field(ge=1, le=10_000)]
    """Windows with speculation, each next to one without."""
    requests: Count
    """Requests that ended, of both sides."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.speedup <= self.high:
            raise ValueError("speedup must lie between low and high")
        return self


class BenchmarkRecord(Wire):
    """A benchmark of one revision."""

    revision: Annotated[str, Field(pattern=r"^[0-9a-z]{1,63}$")]
    """Revision that was measured (status.currentRevision)."""
    at: Time
    """When it ended."""
    against: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:/%\[\]-]{0,253}$")] = ""
    """What ran the target alone: a service's name, or a server's address; empty: the service itself."""
    levels: Annotated[tuple[RecordedLevel, ...], Field(min_length=1, max_length=64)]


@dataclass(frozen=True)
class Benchmark:
    """What the recorded benchmark measured of the revision that serves: its worth, or why there is none."""

    worth: Worth
    at: str = ""
    """When it was measured, RFC 3339."""
    reason: ServingReason | None = None
    """None where the worth is known."""


def benchmark(service: SpeculativeInferenceService, observed: Observed, load: float | None) -> Benchmark | None:
    """What is recorded of the revision that serves (status.currentRevision); None where nothing is recorded.

    `load`: requests at once in a replica, if known: the level that is nearest to it counts, else the lowest.
    """
    revision = service.status.current_revision
    if observed.benchmark is None:
        return None
    try:
        record = _read(observed.benchmark)
    except ValueError as error:
        problem = f"ConfigMap {names.benchmark(service.name)} has no result of tandem bench: {error}"
        worth = Worth(message=f"{problem}; run it again with --record")
        return Benchmark(worth, reason=ServingReason.BENCHMARK_UNREADABLE)
    at = record.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    if record.revision != revision:
        problem = f"tandem bench measured revision {record.revision} at {at}, and {revision or 'none'} serves"
        worth = Worth(message=f"{problem}: run it again with --record")
        return Benchmark(worth, at, ServingReason.BENCHMARK_OUTDATED)
    level = _nearest(record.levels, load)
    if level.pairs < LEAST_PAIRS:
        measured = f"{counted(level.pairs, 'pair')} of windows at {counted(level.streams, 'stream')}"
        message = f"tandem bench measured {measured}, too few: run it again with --record --repeats {LEAST_PAIRS}"
        return Benchmark(Worth(samples=level.requests, message=message), at, ServingReason.BENCHMARK_TOO_SHORT)
    return Benchmark(_worth(level, record), at)


def _read(data: Mapping[str, str]) -> BenchmarkRecord:
    """Raises ValueError, with one line that is fit for a status."""
    text = data.get(KEY)
    if text is None:
        raise ValueError(f"there is no {KEY}")
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"{KEY} is longer than {MOST_BYTES >> 10} KiB")
    try:
        return BenchmarkRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in _FIELDS)
        raise ValueError(f"{where or KEY}: {first['msg']}"[:200]) from None


_FIELDS = {to_camel(name) for model in (BenchmarkRecord, RecordedLevel) for name in model.model_fields}


def _nearest(levels: Sequence[RecordedLevel], load: float | None) -> RecordedLevel:
    """Loads are compared by their ratio."""
    at = max(load or 0.0, 1.0)
    return min(levels, key=lambda level: (abs(math.log(level.streams / at)), level.streams))


def _worth(level: RecordedLevel, record: BenchmarkRecord) -> Worth:
    at = record.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    against = f" against {record.against}" if record.against else ""
    return Worth(
        speedup=level.speedup,
        low=level.low,
        high=level.high,
        source="Benchmark",
        samples=level.requests,
        message=(
            f"{level.speedup:.2f} times the target alone ({level.low:.2f} to {level.high:.2f}) with"
            f" {counted(level.streams, 'stream')}, by tandem bench{against}:"
            f" {counted(level.pairs, 'pair')} of windows, {counted(level.requests, 'request')}"
            f" (revision {record.revision}, {at})"
        ),
    )
