"""The tables of docs/reference/benchmarks/gpu.md: `python -m bench.gpu.served.tables FILE` (the benchmark's JSON)."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.bls.report import markdown
from bench.gpu.served.report import Row, find, ideal
from bench.gpu.served.ways import CASES


def speed(figures: dict[str, Any]) -> str:
    """Tokens/s by case and streams; in brackets the ratio to the target alone, and of a fixed length to the ideal."""
    rows: list[Row] = figures["rows"]
    streams = sorted({row["streams"] for row in rows})
    names = list(dict.fromkeys(row["case"] for row in rows))
    lines = [[name, *(_speed(find(rows, name, count), figures) for count in streams)] for name in names]
    return markdown(["", *(f"{count} streams" for count in streams)], lines)


def _speed(row: Row | None, figures: dict[str, Any]) -> str:
    if row is None:
        return ""
    case = CASES[row["case"]]
    base = find(figures["rows"], case.base, row["streams"])
    text = f"{row['tokens_per_second']:,.0f}"
    if base is None or base["case"] == row["case"]:
        return text
    of_alone = f"{row['tokens_per_second'] / base['tokens_per_second']:.2f} x"
    best = ideal(row, figures["steps_ms"], case.draft_len) if case.draft_len and case.together else None
    of_ideal = f"; {row['tokens_per_second'] / best:.2f}" if best else ""
    return f"{text} ({of_alone}{of_ideal})"


def _medians(figures: dict[str, Any], names: Sequence[str]) -> list[Row]:
    """The runs of these cases of median speed."""
    rows: list[Row] = figures["rows"]
    streams = sorted({row["streams"] for row in rows})
    found = (find(rows, name, count) for name in names for count in streams)
    return [row for row in found if row]


def latency(figures: dict[str, Any], names: Sequence[str]) -> str:
    """ms to the first token and between tokens, p50 / p99, of some cases."""
    rows = _medians(figures, names)
    lines = [
        [row["case"], str(row["streams"]), *(_pair(row[name]) for name in ("ttft_ms", "itl_ms"))] for row in rows
    ]
    return markdown(["", "streams", "TTFT", "ITL"], lines)


def _pair(percentiles: dict[str, float] | None) -> str:
    return f"{percentiles['p50']:.1f} / {percentiles['p99']:.1f}" if percentiles else ""


def rounds(figures: dict[str, Any], names: Sequence[str]) -> str:
    """Where a round's ms go: passes on the GPU, the rest of the engines, and beyond them; and what is accepted."""
    lines = []
    for row in _medians(figures, names):
        parts, length = row["round"], CASES[row["case"]].draft_len
        if not parts or not length or not CASES[row["case"]].together:
            continue
        steps = figures["steps_ms"]
        gpu = [length * steps[f"draft {row['streams']} 1"], steps[f"target {row['streams']} {length + 1}"]]
        accepted = " ".join(f"{share:.2f}" for share in row["acceptance"])
        cells = [f"{value:.1f}" for value in (parts["ms"], gpu[0], parts["draft_ms"], gpu[1], parts["target_ms"])]
        lines.append([row["case"], str(row["streams"]), *cells, f"{parts['beyond_engines_ms']:.1f}",
                      f"{row['accepted_length']:.2f}", accepted])  # fmt: skip
    head = ["", "streams", "round", "drafts on the GPU", "draft engine", "verification on the GPU", "target engine"]
    return markdown([*head, "beyond", "tokens a round", "accepted, by position"], lines)


def main() -> None:
    """The command."""
    figures = json.loads(Path(sys.argv[1]).read_text())
    print(speed(figures), latency(figures, ["alone", "k=4", "adaptive"]), sep="\n")
    print(rounds(figures, ["k=4", "k=7", "batches, k=4"]))


if __name__ == "__main__":
    main()
