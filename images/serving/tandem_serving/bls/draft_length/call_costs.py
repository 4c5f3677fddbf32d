"""What engine calls cost at the current load, fitted to the calls observed. Pure."""

from __future__ import annotations

from operator import mul

import numpy as np
import numpy.typing as npt

from tandem_serving.bls.calls import LONGEST_SPAN, TAKEN_IN

Features = tuple[float, ...]

# Relative noise of one call's time, and relative change of an engine's speed from call to call.
NOISE = 0.1
DRIFT = 0.02
# Share of the initial uncertainty that comes back with each call, so that nothing is known for ever.
RELAX = 1e-4
# Innovations beyond this many standard deviations are cut: a stalled machine is no slow engine.
CUT = 3.0
# A call that takes so many times the expected, or so much less, counts only if the next one does too: a machine
# stalled, or the engine took two calls in one step.
SURPRISE = 2.0
# Seconds that a call can take: what a clock shows beyond these is no call's time, and is no divisor or square.
SHORTEST, LONGEST = 1e-6, 1e5
# Prompt tokens of which is thought that they take as long as a call, or much less.
PROMPT_TOKENS = 1000
# Rows that take as long on a call's way through the server, there and back, as the call without them. Measured with
# tests/bench/bls: 1.3 ms and 0.1 ms a row for calls of the target, 0.8 and 0.06 for those of the draft, 1 to 32 rows.
WAY_ROWS = 13
# Part of a step by which calls that all begin together take longer, for each row: all have to be made and answered at
# once. 0.2 to 0.4 ms of 12, measured with tests/bench/bls (64 rows, two cores).
TOGETHER = 0.03
# Tokens over which it is averaged how many calls the target alone makes of them.
CALLS_TOKENS = 10_000


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
        return max(SHORTEST, seconds)

    def observe(self, call: Features, seconds: float, share: float, like: Features, of: float = 1) -> None:
        """Learn what a call took, one `of` so many at once.

        The first one is taken to take the guess's time, scaled, but for a `share` (0..1) that rows take; how sure
        that is follows from the features of a call `like` it.
        """
        seconds = min(max(seconds, SHORTEST), LONGEST)
        if not self._known:
            self._begin(call, seconds, share, like)
        expected = self.predict(call)
        odd = seconds > SURPRISE * expected or SURPRISE * seconds < expected
        surprised, self._surprised = self._surprised, odd
        if self._surprised and not surprised:
            return
        x = np.array(call)
        drift, relax = DRIFT**2 / of, RELAX / of
        self._covariance += drift * (self._theta[:, None] * self._theta) + relax * (self._start - self._covariance)
        expected = float(x @ self._theta)
        spread = self._covariance @ x
        variance = float(x @ spread) + of * (NOISE * (expected + seconds) / 2) ** 2
        limit = CUT * variance**0.5
        error = min(max(seconds - expected, -limit), limit)
        self._theta = self._theta + spread * (error / variance)
        self._covariance -= (spread[:, None] * spread) / variance
        self._coefficients = tuple(self._theta.tolist())
        if min(self._coefficients) < 0:
            self._project()

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
        self._coefficients = tuple(self._theta.tolist())

    def _begin(self, call: Features, seconds: float, share: float, like: Features) -> None:
        self._known = True
        self._theta = self._theta * (seconds * (1 - share) / self.predict(call))
        self._theta[self._by_rows] = seconds * share / call[self._by_rows]
        self._start = np.diag((self._doubts * seconds / np.array(like)) ** 2)
        self._covariance = self._start + np.outer(self._theta, self._theta)  # the first call may be off as a whole


def _way(rows: float, queued: bool) -> float:
    """How often a call goes the way of one without rows; not at all while the engine has another to work on."""
    return 0.0 if queued else 1 + rows / WAY_ROWS


def _draft(rows: float, k: int, prompt: int, queued: bool) -> Features:
    return _way(rows, queued), k, k * rows, prompt


def _target(rows: float, k: int, prompt: int, queued: bool) -> Features:
    return _way(rows, queued), 1.0, rows, rows * (k + 1), prompt, 0.0


def _own_draft(rows: float, k: int, prompt: int, queued: bool) -> Features:
    """A sequence's call among those of the others."""
    return _way(1, queued), k, k * rows, prompt


def _own_target(rows: float, k: int, prompt: int, queued: bool) -> Features:
    return _way(1, queued), 1.0, rows, rows * (k + 1), prompt, 1.0


def _alone(rows: float, steps: float) -> Features:
    """A sequence's call among those of the others."""
    return _way(1, queued=False), steps, steps * rows, steps * rows, 0.0, 0.0


def _by_itself(rows: float, steps: float, together: bool) -> Features:
    """The same where all do that: what is seen holds all that such calls wait for."""
    return steps, steps * rows, rows * together


class Costs:
    """Seconds of draft and target calls by the rows in the call and the draft length k.

    A draft call takes c + k * (d0 + d1 * rows); a call of the target e + steps * (v0 + v1 * rows) + v2 * tokens, a
    verification being one step of rows * (k + 1) tokens. c and e are the call's way through the server; of a `queued`
    one, which the engine has when it is done with the one before, no sequence waits for that. New prompts take their
    tokens' time besides. Before the first observation a guess holds, of which only the ratio matters.

    What the target takes by itself is fitted apart from that, as steps * (v0 + v1 * rows): its calls overlap where
    verifications wait for each other and for the processors, and neither shows much of the other. Until such a call
    was observed it is taken from the verifications. Those that begin `together`, as in a trial, take w * rows more.

    Without `batched` each sequence makes its own calls, which the engine merges: `rows` are then all that run, and
    each call waits for the step in flight. How many of them are in the same engine is not distinguished.
    """

    def __init__(self, batched: bool = True) -> None:
        self._draft_call, self._target_call = (_draft, _target) if batched else (_own_draft, _own_target)
        self._draft = LinearTime((0.0003, 0.002, 0.0, 0.0), (0.2, 0.5, 0.5, 1.0), by_rows=2)
        self._target = LinearTime((0.001, 0.011, 0.0, 0.0, 0.0, 0.005), (0.2, 0.5, 0.5, 0.5, 1.0, 0.5), by_rows=3)
        self._by_itself: LinearTime | None = None
        self._calls = 1 / LONGEST_SPAN  # for each token of the target alone

    @property
    def known(self) -> bool:
        """Whether calls of both engines were observed."""
        return self._draft.known and self._target.known

    @property
    def alone_known(self) -> bool:
        """Whether long calls of the target alone were observed."""
        return self._by_itself is not None

    def observe_draft(self, rows: float, k: int, seconds: float, prompt: int = 0, queued: bool = False) -> None:
        """A draft call of `k` >= 1 tokens for each of `rows` sequences took `seconds`; new prompts: tokens."""
        if rows > 0 and k > 0 and seconds > 0:
            like = self._draft_call(rows + 8, k, PROMPT_TOKENS, False)
            self._draft.observe(self._draft_call(rows, k, prompt, queued), seconds, _rows_share(rows), like)

    def observe_target(self, rows: float, k: int, seconds: float, prompt: int = 0, queued: bool = False) -> None:
        """A verification of `k` >= 0 tokens for each of `rows` sequences took `seconds`; new prompts: tokens."""
        if rows > 0 and k >= 0 and seconds > 0:
            like = (*self._target_call(rows + 8, k, PROMPT_TOKENS, False)[:5], 1.0)
            self._target.observe(self._target_call(rows, k, prompt, queued), seconds, _rows_share(rows), like)

    def observe_alone(self, rows: float, steps: float, seconds: float, together: bool = False) -> None:
        """A call of `steps` of the target alone took `seconds` while `rows` sequences ran, which each make one.

        `together`: all began theirs in the same moment.
        """
        if rows > 0 and steps > 0 and seconds > 0:
            like = (*_alone(rows + 8, steps)[:4], PROMPT_TOKENS, 1.0)
            if not together or not self._target.known:
                self._target.observe(_alone(rows, steps), seconds, _rows_share(rows), like, of=rows)
            if self._by_itself is None:
                step = self._target.predict(_alone(rows, 1))
                self._by_itself = LinearTime((step, 0.0, TOGETHER * step), (0.5, 0.5, 0.2), by_rows=1)
            call, like = _by_itself(rows, steps, together), _by_itself(rows + 8, steps, together=True)
            self._by_itself.observe(call, seconds, _rows_share(rows), like, of=rows)

    def observe_calls(self, tokens: int, calls: int) -> None:
        """The target alone makes so many calls of so many tokens: requests begin and end with short ones, which wait,
        too."""
        if tokens > 0:
            self._calls += (calls / tokens - self._calls) * min(1.0, tokens / CALLS_TOKENS)

    def doubt_draft(self, keep: float) -> None:
        """No draft was made for a while: believe it to take this share of what was thought."""
        self._draft.doubt(keep)

    def draft(self, rows: float, k: int, queued: bool = False) -> float:
        """Seconds of a draft call of `k` tokens for each of `rows` sequences."""
        return self._draft.predict(self._draft_call(rows, k, 0, queued))

    def target(self, rows: float, k: int, queued: bool = False) -> float:
        """Seconds of a verification of `k` draft tokens for each of `rows` sequences."""
        return self._target.predict(self._target_call(rows, k, 0, queued))

    def step(self, rows: float) -> float:
        """Seconds of a step of the target alone, of a long call, while `rows` sequences run; 0: not known."""
        if self._by_itself:
            return self._by_itself.predict(_by_itself(rows, 1, together=False))
        return self._target.predict(_alone(rows, 1)) if self._target.known else 0.0

    def together(self, rows: float) -> float:
        """Seconds by which a call of the target alone takes longer where all begin theirs together."""
        return self._by_itself.predict((0.0, 0.0, rows)) if self._by_itself else 0.0

    def alone(self, rows: float) -> float:
        """Seconds of a token of the target alone while `rows` sequences run, in calls as it makes them."""
        steps = 1 / self._calls + TAKEN_IN
        if self._by_itself:
            # What was seen may be of a bad moment, and is seen again the more rarely the worse it was. A verification
            # is a step, too, and seen all the time.
            seen = self._by_itself.predict(_by_itself(rows, steps, together=False))
            return self._calls * min(seen, steps * self.target(rows, 0))
        return self._calls * self._target.predict(_alone(rows, steps))


def _rows_share(rows: float) -> float:
    """What share of a first call is put on its rows: half from 64 rows on, less below.

    That rates loads never tried (half of the rows, no draft) rather well, so that they are tried when it matters.
    """
    return rows / (rows + 64)
