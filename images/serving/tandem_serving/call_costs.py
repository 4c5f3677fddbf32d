"""What engine calls cost at the current load, fitted to the calls observed. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Features = Callable[[float, int], tuple[float, float, float]]

# Relative noise of one call's time, and relative change of an engine's speed from call to call.
NOISE = 0.1
DRIFT = 0.02
# Share of the initial uncertainty that comes back with each call, so that nothing is known for ever.
RELAX = 1e-4
# Innovations beyond this many standard deviations are cut: a stalled machine is no slow engine.
CUT = 3.0
# A call that takes so many times the expected counts only if the next one does too.
SURPRISE = 2.0


class LinearTime:
    """Seconds of a call as a non-negative linear function of three features of it.

    A Kalman filter over the coefficients. The engine's speed drifts, which scales all of them, so a change
    seen at one load holds for the others too; what calls don't tell apart stays as it was.
    """

    def __init__(self, features: Features, guess: tuple[float, float, float]) -> None:
        self._features = features
        self._theta: npt.NDArray[np.float64] = np.array(guess)
        self._coefficients = guess
        self._known = self._surprised = False
        self._start: npt.NDArray[np.float64] = np.zeros((3, 3))
        self._covariance = self._start

    @property
    def known(self) -> bool:
        """Whether any call was observed."""
        return self._known

    def predict(self, rows: float, k: int) -> float:
        """Expected seconds of a call."""
        a, b, c = self._features(rows, k)
        x, y, z = self._coefficients
        return a * x + b * y + c * z

    def observe(self, rows: float, k: int, seconds: float) -> None:
        """Learn what a call took."""
        if not self._known:
            self._begin(rows, k, seconds)
        surprised, self._surprised = self._surprised, seconds > SURPRISE * self.predict(rows, k)
        if self._surprised and not surprised:
            return
        x = np.array(self._features(rows, k))
        self._covariance += DRIFT**2 * np.outer(self._theta, self._theta) + RELAX * (self._start - self._covariance)
        expected = float(x @ self._theta)
        spread = self._covariance @ x
        variance = float(x @ spread) + (NOISE * (expected + seconds) / 2) ** 2
        limit = CUT * variance**0.5
        error = min(max(seconds - expected, -limit), limit)
        self._theta = self._theta + spread * (error / variance)
        self._covariance -= np.outer(spread, spread) / variance
        self._project()
        a, b, c = self._theta.tolist()
        self._coefficients = a, b, c

    def _project(self) -> None:
        """Move negative coefficients to 0, and with them the others as far as what was observed ties them."""
        for j in range(3):
            if self._theta[j] < 0:
                self._theta = self._theta - self._covariance[j] * (self._theta[j] / self._covariance[j, j])
        self._theta = np.maximum(self._theta, 0.0)

    def _begin(self, rows: float, k: int, seconds: float) -> None:
        """Scale the guess to the first call.

        Half of it is put on the rows from 64 rows on, less below. That rates loads never tried (half of the
        rows, no draft) rather well, so that they are tried when it matters.
        """
        features = np.array(self._features(rows, k))
        share = rows / (rows + 64)
        self._known = True
        self._theta = self._theta * (seconds * (1 - share) / self.predict(rows, k))
        self._theta[2] = seconds * share / features[2]
        self._start = np.diag((0.5 * seconds / np.array(self._features(rows + 8, k))) ** 2)
        self._covariance = self._start + np.outer(self._theta, self._theta)  # the first call may be off as a whole


class Costs:
    """Seconds of draft and target calls by the rows in the call and the draft length k.

    A draft call takes c + k * (d0 + d1 * rows), a verification v0 + v1 * rows + v2 * rows * (k + 1), a step of
    the target alone the same with k = 0. Calls that carry a new prompt are not shown to it. Before the
    first observation a guess holds, of which only the ratio matters.
    """

    def __init__(self) -> None:
        self._draft = LinearTime(lambda rows, k: (1.0, k, k * rows), (0.0, 0.002, 0.0))
        self._target = LinearTime(lambda rows, k: (1.0, rows, rows * (k + 1)), (0.012, 0.0, 0.0))

    @property
    def known(self) -> bool:
        """Whether calls of both engines were observed."""
        return self._draft.known and self._target.known

    def observe_draft(self, rows: int, k: int, seconds: float) -> None:
        """A draft call of `k` >= 1 tokens for each of `rows` sequences took `seconds`."""
        if rows > 0 and k > 0 and seconds > 0:
            self._draft.observe(rows, k, seconds)

    def observe_target(self, rows: int, k: int, seconds: float) -> None:
        """A verification of `k` draft tokens for each of `rows` sequences took `seconds`.

        With `k` = 0: a step of the target alone, `rows` being the sequences in flight.
        """
        if rows > 0 and k >= 0 and seconds > 0:
            self._target.observe(rows, k, seconds)

    def draft(self, rows: float, k: int) -> float:
        """Seconds of a draft call of `k` tokens for each of `rows` sequences."""
        return self._draft.predict(rows, k)

    def target(self, rows: float, k: int) -> float:
        """Seconds of a verification of `k` draft tokens for each of `rows` sequences."""
        return self._target.predict(rows, k)
