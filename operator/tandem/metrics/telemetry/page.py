"""One pod's metrics at one moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from tandem.api.bounds import MAX_DRAFT_LEN
from tandem.metrics.telemetry.families import (
    ACCEPTED_PER_POSITION,
    COUNTERS,
    ENGINE_LABELS,
    GAUGES,
    HISTOGRAMS,
    OWN_GAUGES,
    TARGETS,
)

MAX_SERIES = 512
"""Of Tandem's and the engines' on a page; the models write about a hundred."""
MOST = 2.0**53
"""Above it a float no longer counts by ones: no counter gets there."""


LABELS = ("model", "le", "position", *dict.fromkeys(ENGINE_LABELS.values()))
"""Of a sample, those that `series` reads."""


class PageError(Exception):
    """A pod's metrics cannot be used; the message says why, in one line."""


class Series(NamedTuple):
    """One number of a family: `part` is "bucket" or "sum" of a histogram, or which number of an engine's it is, else
    empty; `key` a bucket's upper bound in seconds, or a position in the draft."""

    family: str
    part: str = ""
    key: float = 0.0


@dataclass
class Page:
    """Numbers by series. Equal series of several models of the server are added up."""

    counters: dict[Series, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """By field of `PodFigures`."""
    unknown: set[str] = field(default_factory=set)
    """Families with a value that none of theirs can have, such as NaN: nothing of them is used."""

    def add(self, series: Series, value: float) -> Self:
        """Add a sample."""
        if not 0 <= value <= MOST:  # nor is NaN
            self.unknown.add(series.family)
        elif name := GAUGES.get((series.family, series.part)):
            self.gauges[name] = self.gauges.get(name, 0.0) + value
        else:
            self.counters[series] = self.counters.get(series, 0.0) + value
        return self

    def known(self) -> Self:
        """This page without its unknown families.

        Raises:
            PageError: nothing of Tandem's is left.
        """
        if self.unknown:
            self.counters = {series: v for series, v in self.counters.items() if series.family not in self.unknown}
            for (family, _), name in GAUGES.items():
                if family in self.unknown:
                    self.gauges.pop(name, None)
        if not self.counters and self.gauges.keys().isdisjoint(OWN_GAUGES.values()):
            raise PageError("none of Tandem's metrics are there: is this one of its models?")
        return self


def series(name: str, labels: Mapping[str, str]) -> Series | None:
    """The series that a sample belongs to; None for one that is not read.

    Raises:
        PageError: a label is missing or means nothing.
    """
    if name in COUNTERS or (name, "") in GAUGES:
        return Series(name)
    if name in ENGINE_LABELS:
        number = labels.get(ENGINE_LABELS[name], "")
        return Series(name, number) if labels.get("model") in TARGETS and (name, number) in GAUGES else None
    if name == ACCEPTED_PER_POSITION:
        return Series(name, key=_position(labels.get("position", "")))
    family, _, part = name.rpartition("_")
    if family not in HISTOGRAMS or part not in {"bucket", "sum"}:
        return None
    return Series(family, part, _bound(labels.get("le", "")) if part == "bucket" else 0.0)


def _position(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) < MAX_DRAFT_LEN:
        return int(text)
    raise PageError(f"position={text!r} is no position in a draft of at most {MAX_DRAFT_LEN} tokens")


def _bound(text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if bound > 0:
        return bound
    raise PageError(f"le={text!r} is no upper bound of a bucket of seconds")
