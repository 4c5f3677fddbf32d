"""What engine calls cost at the current load, fitted to the calls observed. Pure."""

from __future__ import annotations

from operator import mul

import numpy as np
import numpy.typing as npt

from tandem_serving.calls import LONGEST_SPAN

Features = tuple[float, ...]

# Relative noise of one call's time, and relative change of an engine's speed from call to call.
NOISE = 0.1
DRIFT = 0.02
# Share of the initial uncertainty that comes back with each call, so that nothing is known for ever.
RELAX = 1e-4
# Innovations beyond this many standard deviations are cut: a stalled machine is no slow engine.
CUT = 3.0
# A call that takes so many times the expected counts only if the next one does too.
SURPRISE = 2.0
# Prompt tokens of which is thought that they take as long as a call, or much less.
PROMPT_TOKENS = 1000
# Steps that go by, on average, until the engine takes a call in.
TAKEN_IN = 0.5


class LinearTime:
    """Seconds of a call as a non-negative linear function of features of it.

    A Kalman filter over the coefficients. The engine's speed drifts, which scales all of them, so a change
    seen at one load holds for the others too; what calls don't tell apart stays as it was.
    """

    def __init__(self, guess: Features, doubts: Features, by_rows: int) -> None:
        """`guess`: coefficients, of which only the ratio matters; `doubts`: shares of a call that each may turn out
        to take; `by_rows`: the feature on which more rows are thought to depend."""
        self._theta: npt.NDArray[np.float64] = np.array(guess)
        self._coefficients = guess
        self._doubts = np.array(doubts)
        self._by_rows = by_rows
        self._known = self._surprised = False
        self._start: npt.NDArray[np.float64] = np.zeros((len(guess), len(guess)))
        self._covariance = self._start

    @property
    def known(self) -> bool:
        """Whether any call was observed."""
        return self._known

    def predict(self, call: Features) -> float:
        """Expected seconds of a call."""
        seconds: float = sum(map(mul, call, self._coefficients))
        return seconds

    def observe(self, call: Features, seconds: float, share: float, like: Features) -> None:
        """Learn what a call took.

        The first one is taken to take the guess's time, scaled, but for a `share` (0..1) that rows take; how sure
        that is follows from the features of a call `like` it.
        """
        if not self._known:
            self._begin(call, seconds, share, like)
        surprised, self._surprised = self._surprised, seconds > SURPRISE * self.predict(call)
        if self._surprised and not surprised:
            return
        x = np.array(call)
        self._covariance += DRIFT**2 * np.outer(self._theta, self._theta) + RELAX * (self._start - self._covariance)
        expected = float(x @ self._theta)
        spread = self._covariance @ x
        variance = float(x @ spread) + (NOISE * (expected + seconds) / 2) ** 2
        limit = CUT * variance**0.5
        error = min(max(seconds - expected, -limit), limit)
        self._theta = self._theta + spread * (error / variance)
        self._covariance -= np.outer(spread, spread) / variance
        self._project()
        self._coefficients = tuple(self._theta.tolist())

    def doubt(self, keep: float) -> None:
        """Believe calls to take this share (0..1) of what was thought, and be less sure of it."""
        self._covariance += (1 - keep) * np.outer(self._theta, self._theta)
        self._theta = keep * self._theta
        self._coefficients = tuple(self._theta.tolist())

    def _project(self) -> None:
        """Move negative coefficients to 0, and with them the others as far as what was observed ties them."""
        for j in range(len(self._theta)):
            if self._theta[j] < 0:
                self._theta = self._theta - self._covariance[j] * (self._theta[j] / self._covariance[j, j])
        self._theta = np.maximum(self._theta, 0.0)

    def _begin(self, call: Features, seconds: float, share: float, like: Features) -> None:
        self._known = True
        self._theta = self._theta * (seconds * (1 - share) / self.predict(call))
        self._theta[self._by_rows] = seconds * share / call[self._by_rows]
        self._start = np.diag((self._doubts * seconds / np.array(like)) ** 2)
        self._covariance = self._start + np.outer(self._theta, self._theta)  # the first call may be off as a whole


def _draft(rows: float, k: int, prompt: int) -> Features:
    return 1.0, k, k * rows, prompt


def _target(rows: float, tokens: float, steps: float, prompt: int) -> Features:
    return 1.0, steps, steps * rows, tokens, prompt


class Costs:
    """Seconds of draft and target calls by the rows in the call and the draft length k.

    A draft call takes c + k * (d0 + d1 * rows), c being little; a call of the target e + steps * (v0 + v1 * rows)
    + v2 * tokens, a verification being one step of rows * (k + 1) tokens. New prompts take their tokens' time beside
    that. Before the first observation a guess holds, of which only the ratio matters.
    """

    def __init__(self) -> None:
        self._draft = LinearTime((0.0, 0.002, 0.0, 0.0), (0.1, 0.5, 0.5, 1.0), by_rows=2)
        self._target = LinearTime((0.001, 0.011, 0.0, 0.0, 0.0), (0.1, 0.5, 0.5, 0.5, 1.0), by_rows=3)

    @property
    def known(self) -> bool:
        """Whether calls of both engines were observed."""
        return self._draft.known and self._target.known

    def observe_draft(self, rows: float, k: int, seconds: float, prompt: int = 0) -> None:
        """A draft call of `k` >= 1 tokens for each of `rows` sequences took `seconds`; new prompts: tokens."""
        if rows > 0 and k > 0 and seconds > 0:
            like = _draft(rows + 8, k, PROMPT_TOKENS)
            self._draft.observe(_draft(rows, k, prompt), seconds, _rows_share(rows), like)

    def observe_target(self, rows: float, k: int, seconds: float, prompt: int = 0) -> None:
        """A verification of `k` >= 0 tokens for each of `rows` sequences took `seconds`; new prompts: tokens."""
        self._observe_target(rows, rows * (k + 1), 1, seconds, prompt)

    def observe_alone(self, rows: float, steps: float, seconds: float) -> None:
        """A call of `steps` of the target alone took `seconds` while `rows` sequences ran."""
        self._observe_target(rows, rows * steps, steps, seconds, 0)

    def _observe_target(self, rows: float, tokens: float, steps: float, seconds: float, prompt: int) -> None:
        if rows > 0 and tokens > 0 and seconds > 0:
            like = _target(rows + 8, tokens * (rows + 8) / rows, steps, PROMPT_TOKENS)
            self._target.observe(_target(rows, tokens, steps, prompt), seconds, _rows_share(rows), like)

    def doubt_draft(self, keep: float) -> None:
        """No draft was made for a while: believe it to take this share of what was thought."""
        self._draft.doubt(keep)

    def draft(self, rows: float, k: int) -> float:
        """Seconds of a draft call of `k` tokens for each of `rows` sequences."""
        return self._draft.predict(_draft(rows, k, 0))

    def target(self, rows: float, k: int) -> float:
        """Seconds of a verification of `k` draft tokens for each of `rows` sequences."""
        return self._target.predict(_target(rows, rows * (k + 1), 1, 0))

    def alone(self, rows: float) -> float:
        """Seconds of a token of the target alone, in long calls, while `rows` sequences run."""
        steps = LONGEST_SPAN + TAKEN_IN
        return self._target.predict(_target(rows, rows * steps, steps, 0)) / LONGEST_SPAN


def _rows_share(rows: float) -> float:
    """What share of a first call is put on its rows: half from 64 rows on, less below.

    That rates loads never tried (half of the rows, no draft) rather well, so that they are tried when it matters.
    """
    return rows / (rows + 64)
