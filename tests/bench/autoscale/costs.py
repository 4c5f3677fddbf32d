"""What a replica's steps cost, by the cost model of the speculative BLS's benchmark. Pure."""

from dataclasses import dataclass, replace
from functools import lru_cache

from bench.bls.in_flight import Costs, Pair

# Three times the benchmark's: a model of some 70 billion parameters rather than of 13.
PAIR = Pair(
    draft=Costs(6.0, per_sequence=0.15, per_prefill_token=0.002),
    target=Costs(36.0, per_sequence=0.15, per_draft_token=0.15, per_prefill_token=0.01),
    shared=True,
)
PLACES = 32
MAX_DRAFT_LEN = 6


@dataclass(frozen=True)
class Speed:
    """A replica with a number of sequences: draft length, tokens of a round, seconds of one."""

    k: int
    tau: float
    seconds: float

    @property
    def itl(self) -> float:
        """Seconds between tokens."""
        return self.seconds / self.tau


def prefill(tokens: float) -> float:
    """Seconds that a prompt takes on both engines."""
    return tokens * (PAIR.draft.per_prefill_token + PAIR.target.per_prefill_token) * 1e-3


def reach(acceptance: float, k: int) -> list[float]:
    """Probability that the first 1..k draft tokens are accepted."""
    return [acceptance**i for i in range(1, k + 1)]


@lru_cache(maxsize=65536)
def speed(rows: int, acceptance: float, context: float, k: int | None) -> Speed:
    """A replica with so many sequences; `k` None: the length with the most tokens a second, as the adaptive BLS
    finds it."""
    lengths = range(MAX_DRAFT_LEN + 1) if k is None else (k,)
    draft = replace(PAIR.draft, per_sequence=PAIR.draft.per_sequence * context)
    target = replace(PAIR.target, per_sequence=PAIR.target.per_sequence * context)
    found = [
        Speed(n, 1 + sum(reach(acceptance, n)), n * draft.step(rows) + target.step(rows, rows * n)) for n in lengths
    ]
    return min(found, key=lambda each: each.itl)
