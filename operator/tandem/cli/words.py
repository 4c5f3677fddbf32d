"""How `tandem status` and `tandem top` show figures, ages and quantities, and where."""

import re
from collections.abc import Container, Iterable
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.table import Table

NONE = "-"
NARROW = 80
"""Columns of a terminal below which a table leaves out what its other columns can do without."""
_DECIMAL = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES = _DECIMAL | {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(rf"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)({'|'.join(_SUFFIXES)})")


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None else f"{value:.1%}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits."""
    return NONE if value is None else f"{value:,.{digits}f}"


def factor(value: float | None) -> str:
    """A ratio."""
    return NONE if value is None else f"{value:.2f}x"


def age(since: str, now: datetime) -> str:
    """Time since an RFC 3339 moment, in the largest unit that has two of it."""
    seconds = max(0.0, (now - datetime.fromisoformat(since)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def console(*, wide: bool = False) -> Console:
    """Standard output; where it is no terminal, or `wide` is asked for, wide enough for whole tables."""
    made = Console()
    return made if made.is_terminal and not wide else Console(width=240)


def listing(columns: Iterable[str], broken: Container[str]) -> Table:
    """A table whose `broken` columns are broken over lines where they are too wide: none is cut, or falls off."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        made.add_column(column, no_wrap=column not in broken, overflow="fold")
    return made


def now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def quantity(text: str) -> float:
    """A Kubernetes Quantity, such as 1430m or 2Gi. Raises ValueError.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    return float(match[1]) * _SUFFIXES[match[2]]
