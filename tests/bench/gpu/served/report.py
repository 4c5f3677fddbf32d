"""Rows as lines and tables; each with its ratio to the target alone and to the ideal by measured steps."""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def line(row: Row) -> str:
    """For reading while it is measured."""
    accepted, parts = row["accepted_length"], row["round"]
    text = f"{row['streams']:3} streams  {row['case']:18} {row['tokens_per_second']:8.0f} tokens/s"
    text += f"  TTFT {_ms(row['ttft_ms'])}  ITL {_ms(row['itl_ms'])} ms"
    if accepted:
        text += f"  length {accepted:.2f}"
    if parts:
        text += f"  round {parts['ms']:.1f} = {parts['draft_ms']:.1f} + {parts['target_ms']:.1f}"
        text += f" + {parts['beyond_engines_ms']:.1f}"
    return text


def _ms(percentiles: dict[str, float] | None) -> str:
    return f"{percentiles['p50']:.1f}/{percentiles['p99']:.1f}" if percentiles else "-"


def ideal(row: Row, steps: dict[str, float], draft_len: int) -> float | None:
    """Tokens/s if a round were its steps on the GPU and nothing else; None: they were not measured."""
    target = steps.get(f"target {row['streams']} {draft_len + 1}")
    draft = steps.get(f"draft {row['streams']} 1")
    if not target or not draft:
        return None
    tokens = row["accepted_length"] if draft_len else 1.0
    return row["streams"] * tokens / (target + draft_len * draft) * 1e3


def find(rows: Sequence[Row], case: str, streams: int) -> Row | None:
    """The run of a case, of several the one of median speed, with all `speeds`."""
    runs = sorted((row for row in rows if (row["case"], row["streams"]) == (case, streams)), key=_speed)
    return {**runs[(len(runs) - 1) // 2], "speeds": [_speed(run) for run in runs]} if runs else None


def _speed(row: Row) -> float:
    speed: float = row["tokens_per_second"]
    return speed
