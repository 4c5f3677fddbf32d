"""What a step of a replica takes at its load and draft length, fitted to what is observed. Pure.

T(b, k) = k (d0 + d1 b) + v0 + v1 b (k + 1) seconds: b sequences that run, k draft tokens of each, and their
verification. A step without a draft, k = 0, is one of the target alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Relative noise of a window's mean step time, and relative changes in the square root of a minute: of a replica's
# speed (all coefficients alike, as when clocks fall), and of what sequences cost (d1 and v1, as when contexts grow).
NOISE = 0.05
DRIFT = 0.08
DRIFT_BY_ROWS = 0.3
BY_ROWS = np.array([0.0, 1.0, 0.0, 1.0])
# Share of the initial uncertainty that comes back in an hour, so that nothing is known for ever.
RELAX = 0.02
# Innovations beyond this many standard deviations are cut: a stalled pod is no slow model.
CUT = 3.0
# Of the first observations one in less than half of what was expected shows that those before it were the stall, as
# when a new server compiles what its first requests need: it counts as the first.
FIRST = 12
# Sequences at which a first observation is thought to be half made of them.
HALF = 64.0
# Share of a coefficient's guessed time that it may turn out to take otherwise: d0, d1, v0, v1.
DOUBTS = (1.0, 0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Prediction:
    """Seconds, and their relative standard deviation: how certain they are."""

    seconds: float
    doubt: float


def features(rows: float, k: float) -> Array:
    """What the coefficients d0, d1, v0, v1 are multiplied with."""
    return np.array([k, k * rows, 1.0, rows * (k + 1)])


class StepTime:
    """A Kalman filter over the coefficients.

    The speed drifts, which scales all coefficients, and what sequences cost does, which scales two of them: so a
    change seen at one load holds for the others too. What the loads seen don't separate (draft from verification at
    a fixed draft length, say) stays as the guess has it, and uncertain.
    """

    def __init__(self, draft_share: float) -> None:
        """`draft_share`: what a draft token is guessed to take, relative to a step of the target, e.g. 1/6."""
        self._draft_share = draft_share
        self._theta: Array = np.zeros(4)
        self._start: Array = np.zeros((4, 4))
        self._covariance: Array = self._start
        self._count = 0
        self.rows = 0.0
        """Most sequences at once that were seen, a replica; fades slowly."""
        self.fewest = math.inf
        """Fewest that were seen."""

    @property
    def known(self) -> bool:
        """Whether any step was observed."""
        return bool(self._theta.any())

    @property
    def coefficients(self) -> tuple[float, ...]:
        """d0, d1, v0, v1."""
        return tuple(self._theta.tolist())

    def pass_time(self, seconds: float) -> None:
        """So much time went by, in which the replica may have changed."""
        if not self.known or seconds <= 0:
            return
        by_rows = self._theta * BY_ROWS
        drift = DRIFT**2 * np.outer(self._theta, self._theta) + DRIFT_BY_ROWS**2 * np.outer(by_rows, by_rows)
        fade = 1 - (1 - RELAX) ** (seconds / 3600)
        returned = fade * (self._start - self._covariance)
        self._covariance = self._covariance + drift * min(seconds / 60, 10.0) + returned
        self.rows *= 1 - fade

    def observe(self, rows: float, k: float, seconds: float, weight: float = 1.0) -> None:
        """Steps with `rows` sequences and `k` draft tokens (means, fractions allowed) took `seconds` on average.

        `weight`: of a window that overlaps with those before it, the new share.
        """
        if not (rows > 0 and k >= 0 and seconds > 0 and weight > 0 and math.isfinite(rows * k * seconds)):
            return
        if not self.known or (self._count < FIRST and 2 * seconds < float(features(rows, k) @ self._theta)):
            self._begin(rows, k, seconds)
        self._count += 1
        self.rows, self.fewest = max(self.rows, rows), min(self.fewest, rows)
        x = features(rows, k)
        expected = float(x @ self._theta)
        spread = self._covariance @ x
        variance = float(x @ spread) + (NOISE * (expected + seconds) / 2) ** 2 / weight
        limit = CUT * math.sqrt(variance)
        error = min(max(seconds - expected, -limit), limit)
        self._theta = self._theta + spread * (error / variance)
        self._covariance = self._covariance - np.outer(spread, spread) / variance
        self._project()

    def seconds(self, rows: Array, k: Array) -> Array:
        """Expected seconds of steps, elementwise."""
        d0, d1, v0, v1 = self._theta
        return np.asarray(k * (d0 + d1 * rows) + v0 + v1 * rows * (k + 1))

    def predict(self, rows: float, k: float) -> Prediction:
        """Expected seconds of a step, with their certainty."""
        x = features(rows, k)
        seconds = float(x @ self._theta)
        return Prediction(seconds, math.sqrt(max(0.0, float(x @ self._covariance @ x))) / max(seconds, 1e-9))

    def ratio_doubt(self, rows: float, k: float, other: float) -> float:
        """Relative standard deviation of T(rows, k) / T(rows, other)."""
        x, y = features(rows, k), features(rows, other)
        g = x / max(float(x @ self._theta), 1e-9) - y / max(float(y @ self._theta), 1e-9)
        return math.sqrt(max(0.0, float(g @ self._covariance @ g)))

    def _begin(self, rows: float, k: float, seconds: float) -> None:
        by_rows = seconds * rows / (rows + HALF)
        step = (seconds - by_rows) / (1 + self._draft_share * k)
        share = k / (k + 1) * self._draft_share / (1 + self._draft_share)  # of what goes by rows, the draft's
        d1 = by_rows * share / (k * rows) if k else 0.0
        self._theta = np.array([self._draft_share * step, d1, step, by_rows * (1 - share) / (rows * (k + 1))])
        # How far off: a coefficient may make up its share of such a step in another way, at loads like this.
        like = features(rows + 8, max(k, 1.0))
        self._start = np.diag((np.array(DOUBTS) * seconds / like) ** 2)
        self._covariance = self._start + np.outer(self._theta, self._theta)

    def _project(self) -> None:
        """Move negative coefficients to 0, and with them the others as far as what was observed ties them."""
        for j in range(len(self._theta)):
            if self._theta[j] < 0:
                self._theta = self._theta - self._covariance[j] * (self._theta[j] / self._covariance[j, j])
        self._theta = np.maximum(self._theta, 0.0)
