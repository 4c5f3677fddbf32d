"""Objectives below what a replica does at its best: which are named, and that none is without need."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tandem.metrics.capacity.floor import Floors
from tandem.metrics.capacity.lengths import draft_share, lengths
from tandem.metrics.capacity.model import ReplicaModel
from tandem.metrics.capacity.policy import Bounds
from unit.metrics.capacity.truth import Truth, figures, spec

LIMITS = Bounds(least=1, most=10, ttft=1.0, itl=0.05, queue=4, places=32)
# A step of the target with one sequence takes 36.15 ms; with it and 6 draft tokens, a token takes 18.7 ms.
TRUE = Truth()
STEP = TRUE.seconds(1, 0)


class Watched:
    """A model that is fitted to windows, and the objectives that are out of reach by it."""

    def __init__(self, k: int | None = None) -> None:
        """`k`: a fixed draft length; None: any up to 6."""
        service = spec(k or 6, adaptive=k is None, kind="None" if k == 0 else "DraftTarget")
        self.lengths = lengths(service)
        self.model = ReplicaModel(self.lengths.maximum, draft_share(service))
        self.floors, self.at = Floors(), 0.0

    def see(self, rows: float, k: int = 0, truth: Truth = TRUE, noise: float = 1.0, passed: float = 15.0) -> None:
        """A window with so many sequences at once, whose steps took `noise` times as long."""
        self.at += passed
        scaled = Truth(*(noise * c for c in (truth.d0, truth.d1, truth.v0, truth.v1)))
        self.model.observe(figures(self.at, scaled.pod(rows, k)), self.lengths)

    def judge(self, **objectives: float | None) -> tuple[Bounds, str]:
        curve = self.model.curve(LIMITS.places, self.lengths)
        return self.floors.reachable(replace(LIMITS, **objectives), self.model, curve)  # type: ignore[arg-type]

    def names(self, **objectives: float | None) -> str:
        return ", ".join(part.split()[0] for part in self.judge(**objectives)[1].split("; ") if part)


def watched(windows: list[tuple[float, int]], k: int | None = None) -> Watched:
    found = Watched(k)
    for _ in range(40):
        for rows, length in windows:
            found.see(rows, length)
    return found


BOTH_SEEN = [(1.0, 0), (1.0, 4), (20.0, 3)]
CASES: list[tuple[str, list[tuple[float, int]], int | None, dict[str, float | None], str]] = [
    # reason, windows (sequences, draft length), fixed draft length, objectives (s), named
    ("both are kept", BOTH_SEEN, None, {}, ""),
    ("no objective", BOTH_SEEN, None, {"ttft": None, "itl": None}, ""),
    ("a first token within less than a step", BOTH_SEEN, None, {"ttft": 0.02}, "timeToFirstToken"),
    ("within a step, which a cached prompt may take", BOTH_SEEN, None, {"ttft": 1.02 * STEP}, ""),
    ("drafts make tokens come faster than steps, but no first one", BOTH_SEEN, None, {"itl": 0.02, "ttft": 0.02},
     "timeToFirstToken"),
    ("tokens faster than any draft length", BOTH_SEEN, None, {"itl": 0.015}, "interTokenLatency"),
    ("both", BOTH_SEEN, None, {"itl": 0.001, "ttft": 0.001}, "interTokenLatency, timeToFirstToken"),
    ("the target alone", [(1.0, 0), (10.0, 0)], 0, {"ttft": 0.03}, "timeToFirstToken"),
    ("never nearly idle: a step of one may be short", [(24.0, 3), (30.0, 2)], None, {"ttft": 0.9 * STEP}, ""),
    ("never nearly idle: but not as short", [(24.0, 3), (30.0, 2)], None, {"ttft": 0.0005}, "timeToFirstToken"),
    ("always with a draft: one without is uncertain", [(1.0, 4)], 4, {"ttft": 0.75 * STEP}, ""),
    ("always with a draft: but not as much", [(1.0, 4)], 4, {"ttft": 0.1 * STEP}, "timeToFirstToken"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "windows", "k", "objectives", "named"), CASES, ids=[row[0] for row in CASES])
def test_which_are_named(
    reason: str, windows: list[tuple[float, int]], k: int | None, objectives: dict[str, float | None], named: str
) -> None:
    assert watched(windows, k).names(**objectives) == named, reason


def test_it_is_said_with_the_floor_and_asks_for_no_replicas() -> None:
    bounds, said = watched(BOTH_SEEN).judge(itl=0.01, ttft=0.02)
    assert bounds == replace(LIMITS, itl=None, ttft=None)
    assert said == (
        "interTokenLatency 10ms is below what a replica with a single sequence takes, 18.3 ms (draft length 4):"
        " no number of replicas keeps it;"
        " timeToFirstToken 20ms is below what a step of the target takes, 31.1 ms at least:"
        " no number of replicas keeps it"
    )
    assert watched(BOTH_SEEN).judge() == (LIMITS, "")


def test_one_window_is_too_little() -> None:
    seen = Watched()
    seen.see(1.0, 3)
    assert seen.names(ttft=0.5 * STEP) == ""


@pytest.mark.parametrize("loads", [(1.0,), (1.0, 30.0), (2.0, 10.0), (8.0,), (20.0, 28.0), (30.0,)])
@pytest.mark.parametrize("k", [None, 1, 4, 0], ids=lambda k: f"k={k}")
def test_no_first_token_is_accused_that_a_step_allows(loads: tuple[float, ...], k: int | None) -> None:
    """Whatever steps cost, and though those of loaded replicas are held up by others' prompts."""
    rng = random.Random(1)
    for _ in range(6):
        v0 = rng.choice([0.01, 0.036])
        parts = (rng.choice([0.01, 0.05, 0.17, 0.3]), rng.choice([0, 0.004, 0.02]))
        truth = Truth(v0 * parts[0], v0 * parts[1], v0, v0 * rng.choice([0.0005, 0.004, 0.05]))
        seen = Watched(k)
        for _ in range(60):
            rows = rng.choice(loads)
            held = 1 + 0.3 * rows / 32
            seen.see(rows, rng.choice([0, 2, 4, 4]) if k is None else k, truth, rng.uniform(0.93, 1.07) * held)
            assert seen.names(ttft=truth.seconds(1, 0), itl=None) == "", truth


@pytest.mark.parametrize("objective", [0.8, 0.9, 1.0, 1.1, 1.3], ids=lambda share: f"{share} of the floor")
@pytest.mark.parametrize("name", ["ttft", "itl"])
def test_what_is_said_does_not_flap(name: str, objective: float) -> None:
    """Noise of 5%, loads that vary, and pauses, over hours; near the floor."""
    rng, seen, told = random.Random(2), Watched(), []
    goal = objective * (STEP if name == "ttft" else TRUE.itl(1, 4, 0.8))
    for _ in range(300):
        noise, passed = rng.uniform(0.95, 1.05), rng.choice([15.0, 15.0, 15.0, 600.0])
        seen.see(rng.choice([1.0, 3.0, 9.0]), rng.choice([0, 3, 4]), noise=noise, passed=passed)
        told.append(seen.names(**{"ttft": None, "itl": None, name: goal}))
    changes = sum(one != other for one, other in pairwise(told))
    assert changes <= 4


def test_another_objective_is_judged_anew() -> None:
    seen = watched(BOTH_SEEN)
    between = 0.95 * STEP
    assert seen.names(ttft=0.02) == "timeToFirstToken"
    assert seen.names(ttft=between) == ""
