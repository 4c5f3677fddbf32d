"""Rows as a line each and as tables."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from bench.bls.report import markdown

Row = dict[str, Any]
DIRECT, TRITON = "AsyncLLM", "Triton"
WAYS = (DIRECT, TRITON)
HEAD = ["drafts", "streams", *(f"{way}, tokens/s" for way in WAYS), "ratio", "to no draft", "TTFT", "ITL", "length"]


def line(row: Row) -> str:
    """For reading while it is measured."""
    ttft = f"{row['ttft_ms']['p50']:.1f}" if row["ttft_ms"] else "-"
    return (
        f"{row['kind']:12} {row['method']:12} {row['streams']:3} streams {row['way']:8}"
        f" {row['tokens_per_second']:8.0f} tokens/s  TTFT {ttft} ms"
    )


def tables(rows: Sequence[Row]) -> str:
    """One of each kind of load: speed both ways and their ratio; Triton's to that without drafts; tokens a pass.

    Medians of ms to the first token and between tokens are directly / through Triton.
    """
    made = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of_kind = [row for row in rows if row["kind"] == kind]
        pairs = itertools.product(*(dict.fromkeys(row[key] for row in of_kind) for key in ("method", "streams")))
        lines = [cells for method, streams in pairs if (cells := _cells(of_kind, method, streams))]
        made.append(f"{kind}\n\n{markdown(HEAD, lines)}")
    return "\n".join(made)


def _cells(rows: Sequence[Row], method: str, streams: int) -> list[str]:
    """Empty: it was not measured both ways."""
    found = [_mean(rows, method, streams, way) for way in WAYS]
    direct, triton = found
    if not direct or not triton:
        return []
    alone = _mean(rows, "none", streams, TRITON)
    speeds = [each["tokens_per_second"] for each in found]
    waits = [" / ".join(f"{each[name]:.1f}" for each in found) for name in ("ttft_ms", "itl_ms")]
    length = triton["accepted_length"]
    return [
        method,
        str(streams),
        *(f"{speed:,.0f}" for speed in speeds),
        f"{speeds[1] / speeds[0]:.3f}",
        f"{speeds[1] / alone['tokens_per_second']:.2f}" if alone else "",
        *waits,
        f"{length:.2f}" if length else "",
    ]


def _mean(rows: Sequence[Row], method: str, streams: int, way: str) -> dict[str, float]:
    """Of all windows of a case, of their medians; empty: there is none."""
    key = (method, streams, way)
    found = [row for row in rows if (row["method"], row["streams"], row["way"]) == key]
    if not found:
        return {}
    waits = {name: [row[name]["p50"] for row in found if row[name]] for name in ("ttft_ms", "itl_ms")}
    return {
        "tokens_per_second": statistics.mean(row["tokens_per_second"] for row in found),
        **{name: statistics.mean(values) if values else float("nan") for name, values in waits.items()},
        "accepted_length": statistics.mean(row.get("accepted_length") or 0.0 for row in found),
    }
