"""Time of the reference engine's forward passes, against each other and against memory bandwidth.

`python -m bench.engine [--target FOLDER --draft FOLDER]` (tests and images/reference on PYTHONPATH) prints
medians of CPU time over interleaved rounds, so that what else the machine does falls on all alike.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import reference_engine  # sets up OpenBLAS: before numpy

# isort: split
import numpy as np
import numpy.typing as npt

from reference_engine import config as model_config
from reference_engine import layout, weights
from reference_engine.backend import Segment
from reference_engine.kv_cache import KVCache
from reference_engine.model import Llama

PAIR = Path(reference_engine.__file__).resolve().parents[1] / "pair"
BATCH = 8
LENGTH = 256
ROUNDS = 40
REPEATS = 4
STREAM_BYTES = 64 << 20


@dataclass(frozen=True)
class Loaded:
    """A model with `LENGTH` tokens in each of its slots, and the bytes of weights that a pass reads."""

    model: Llama
    weight_bytes: int


def load(folder: Path) -> Loaded:
    """Read a checkpoint and fill its slots."""
    config = model_config.read(folder)
    packed = layout.build(weights.read(folder, config), config, 2 * LENGTH)
    model = Llama(config, packed, KVCache(config, BATCH, 2 * LENGTH), 512)
    for slot in range(BATCH):
        model.forward([Segment(slot, 0, _ids(LENGTH, config.vocab_size), 1)])
    return Loaded(model, packed.bytes_per_pass)


def _ids(count: int, vocabulary: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(count).integers(0, vocabulary, count).astype(np.int32)


def passes(loaded: Loaded, role: str) -> dict[str, Callable[[], object]]:
    """Named passes: `sequences` of them with `rows` tokens each."""

    def forward(sequences: int, rows: int) -> Callable[[], object]:
        ids = _ids(rows, loaded.model.config.vocab_size)
        segments = [Segment(slot, LENGTH, ids, rows) for slot in range(sequences)]
        return lambda: loaded.model.forward(segments)

    return {
        f"{role} decode, batch 1": forward(1, 1),
        f"{role} decode, batch {BATCH}": forward(BATCH, 1),
        f"{role} verify 5 rows": forward(1, 5),
        f"{role} verify 8 rows": forward(1, 8),
        f"{role} verify 5 rows, batch {BATCH}": forward(BATCH, 5),
    }


def measure(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each (all are one thread's), in rounds of several in a row, as a server runs them."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            action()  # what another pass left in the caches is not this one's time
            started = time.thread_time()
            for _ in range(REPEATS):
                action()
            times[name].append((time.thread_time() - started) / REPEATS)
    return {name: statistics.median(values) for name, values in times.items()}


def report(seconds: dict[str, float], weight_bytes: dict[str, int]) -> list[str]:
    """Lines: each pass, its time, over one decoded row, over the floor of reading the weights once."""
    bandwidth = STREAM_BYTES / seconds["memory"]
    lines = [f"memory bandwidth, one thread: {bandwidth / 1e9:.1f} GB/s", ""]
    lines.append(f"{'pass':<32}{'ms':>8}{'x decode':>10}{'x floor':>9}")
    for role, size in weight_bytes.items():
        decode, floor = seconds[f"{role} decode, batch 1"], size / bandwidth
        for name, value in seconds.items():
            if name.startswith(role):
                lines.append(f"{name:<32}{value * 1e3:>8.2f}{value / decode:>10.2f}{value / floor:>9.2f}")
    lines.append("")
    draft = seconds["draft decode, batch 1"] / seconds["target decode, batch 1"]
    verify = seconds["target verify 8 rows"] / seconds["target decode, batch 1"]
    lines.append(f"draft step / target step: {draft:.3f} (goal: at most {1 / 6:.3f})")
    lines.append(f"verifying 8 rows / decoding one: {verify:.2f} (goal: at most 1.15)")
    return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=PAIR / "target", help="checkpoint folder")
    parser.add_argument("--draft", type=Path, default=PAIR / "draft", help="checkpoint folder")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    loaded = {"target": load(options.target), "draft": load(options.draft)}
    stream = np.ones(STREAM_BYTES // 4, np.float32)
    seconds = measure({"memory": stream.max}, options.rounds)  # apart: it empties the caches
    actions: dict[str, Callable[[], object]] = {}
    for role, each in loaded.items():
        actions |= passes(each, role)
    seconds |= measure(actions, options.rounds)
    lines = report(seconds, {role: each.weight_bytes for role, each in loaded.items()})
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
