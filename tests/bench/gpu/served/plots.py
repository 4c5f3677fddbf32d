"""A picture of docs/reference/benchmarks/gpu.md, from the benchmark's JSON to an SVG:
`python -m bench.gpu.served.plots FILE PICTURE`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tandem", "font.size": 8})

from matplotlib import pyplot as plt  # noqa: E402 - after the backend is chosen

from bench.gpu.served.report import find  # noqa: E402

NAMES = ("k=4", "adaptive", "LLM API, k=4")


def gains(figures: Mapping[str, Any], new_prompts: bool) -> dict[str, list[tuple[int, float]]]:
    """Tokens/s of NAMES as ratios to the target alone, by streams."""
    suffix = ", new prompts" if new_prompts else ""
    rows = figures["rows"]
    made: dict[str, list[tuple[int, float]]] = {}
    for name in NAMES:
        for streams in sorted({row["streams"] for row in rows}):
            case, alone = find(rows, name + suffix, streams), find(rows, "alone" + suffix, streams)
            if case and alone:
                gain = case["tokens_per_second"] / alone["tokens_per_second"]
                made.setdefault(name, []).append((streams, gain))
    return made


def draw(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the picture: prompts in the KV cache, and new ones."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), sharey=True)
    for axis, new_prompts in zip(axes, (False, True), strict=True):
        for name, points in gains(figures, new_prompts).items():
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=name)
        axis.axhline(1, color="black", linewidth=0.5)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 4, 16, 64], labels=["1", "4", "16", "64"])
        axis.set_xlabel("streams")
        axis.set_title("new prompts" if new_prompts else "prompts in the KV cache", fontsize=8)
    axes[0].set_ylabel("tokens/s ÷ target alone")
    axes[0].set_ylim(0)
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[2]), json.loads(Path(sys.argv[1]).read_text()))
