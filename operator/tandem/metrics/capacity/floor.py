"""Objectives that no number of replicas keeps: a replica with a single sequence does not. Deterministic.

- `interTokenLatency`: its tokens come every T(1, k) / tau(k) seconds, k being the draft length that it would use.
- `timeToFirstToken`: a first token takes a pass of the target over what of the prompt is not cached, its last token
  at least, and so no less than a step of the target, T(1, 0) (`step_time`). Most prompts take longer (Agrawal et al.,
  2024, "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", arXiv:2403.02310), but how long
  without others next to them, the pods do not report: so what is below this floor is out of reach for every prompt.

T(1, 0) is not extrapolated from higher loads: it is at least T(b, 0) / b, b being the fewest sequences that were
seen. Where replicas always drafted, a step without a draft is uncertain: then the lower end of its interval counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tandem.metrics.capacity.model import Curve, ReplicaModel
from tandem.metrics.capacity.policy import Bounds

# Standard deviations of a 95% interval.
WIDTH = 1.96
# An inter-token latency that was out of reach is within it again from so much above its floor.
MARGIN = 1.1


@dataclass(frozen=True)
class Floor:
    """What a replica takes at its best, in seconds."""

    least: float
    """An objective below this is out of reach ..."""
    most: float
    """... and stays so while it is below this: floors move a little with each window."""
    words: str


class Floors:
    """Which objectives are out of reach, from window to window."""

    def __init__(self) -> None:
        self._floors: dict[tuple[str, float], str] = {}

    def reachable(self, bounds: Bounds, model: ReplicaModel, curve: Curve) -> tuple[Bounds, str]:
        """The bounds without objectives that no number of replicas keeps, and which those are, in words. `curve`:
        the model's, of the replica as it is."""
        wanted = {"interTokenLatency": bounds.itl, "timeToFirstToken": bounds.ttft}
        floors = {}
        for name, floor in _floors(model, curve):
            goal = wanted[name]
            if goal is not None and goal < floor.least:
                floors[name, goal] = (
                    f"{name} {goal * 1e3:g}ms is below what {floor.words}: no number of replicas keeps it"
                )
            elif goal is not None and goal < floor.most and (name, goal) in self._floors:
                floors[name, goal] = self._floors[name, goal]
        self._floors = floors
        names = {name for name, _ in floors}
        kept = replace(
            bounds,
            itl=None if "interTokenLatency" in names else bounds.itl,
            ttft=None if "timeToFirstToken" in names else bounds.ttft,
        )
        return kept, "; ".join(floors.values())


def _floors(model: ReplicaModel, curve: Curve) -> Iterator[tuple[str, Floor]]:
    between = float(curve.itl[0])
    words = f"a replica with a single sequence takes, {_ms(between)} (draft length {curve.k[0]})"
    yield "interTokenLatency", Floor(between, between * MARGIN, words)
    rows = max(1.0, model.step_time.fewest)
    step = model.step_time.predict(rows, 0)
    likely = step.seconds / rows
    least = likely * math.exp(-WIDTH * step.doubt)
    words = f"a step of the target takes, {_ms(least)} at least"
    yield "timeToFirstToken", Floor(least, likely, words)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
