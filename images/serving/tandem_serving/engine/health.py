"""Whether an engine still works, from what becomes of its calls. Pure: every method takes the time (seconds of any
clock that does not go back).

TensorRT-LLM's executor survives a CUDA error: it fails all requests, those that come later too, while Triton calls
the model ready. So an engine is judged by its calls, and by a canary: a call of one token that must work if anything
does. The canary is what keeps a client's own faults apart from the engine's. An engine is

- *failing* when `CANARIES` canaries in a row fail and no call of anybody is answered between them. A call that fails
  is why one is sent at once; one that fails among others that are answered costs nothing.
- *hung* when calls wait and none at all was answered for `SILENCE` seconds, or for longer where a call that waits has
  more to do: `TIMES` what it should take, by its work and by what calls took so far (of a long one `TIMES_LONG` that,
  and `NEW` seconds); `NEW` seconds for the first call of its kind, as engines compile code for some.

A *call* is lost where it waits for `NEW` seconds or `TIMES` what it should take, if that is longer, and others were
answered that began later: an engine that has much to do answers in turn.

Nothing is judged before the engine has answered once: until then the startup probe judges. A canary that never worked
is not believed where no request fails: this engine may not take such calls.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

Reason = Literal["EngineFailing", "EngineHung", "EngineArgumentsRefused"]

CANARY_PROMPT = "def main():"
"""Of the canary and of the startup probe: an engine that the probe has reached takes it."""
CANARY = "canary"
"""The canary, among calls, and its kind."""
IDLE = 3.0
"""Seconds without an answer after which the canary is sent. With SILENCE, a hang is found within 12 s."""
AGAIN = 0.5
"""Seconds between canaries where calls fail."""
CANARIES = 4
SILENCE, NEW = 8.0, 60.0
TIMES, TIMES_LONG = 20.0, 3.0
PROMPT_TOKENS = 64
"""Tokens of a prompt that are about as much work as a step."""
SLOWER = 0.1
"""How fast what calls take is forgotten, where it was more than now."""
LONGEST_LOOK = 0.5
"""Of the time between two looks, what counts as silence: a process that stood still has seen nothing meanwhile."""
MOST_MESSAGE = 500


@dataclass(frozen=True)
class EngineVerdict:
    """An engine that does not work any more: `message` is its own last error, one line."""

    reason: Reason
    message: str


@dataclass
class _Call:
    """It `began` then; `started`: then, or at its latest answer, since when it has so much `work`."""

    work: float
    kind: Hashable
    started: float
    began: float


class EngineHealth:
    """Not thread-safe. `idle`: see IDLE; 0: no canary is sent, so that failing is never found."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._calls: dict[Hashable, _Call] = {}
        self._kinds: set[Hashable] = {CANARY}  # it is as plain as the startup probe
        self._step = 0.0
        self._latency = 0.0  # seconds a step, of calls that may have waited for others
        self._latest = -math.inf  # the latest beginning of a call that was answered
        self._latest_part = -math.inf  # and of the part of a call
        self._answered: float | None = None
        self._sign = 0.0  # the last answer or error
        self._asked = 0.0  # the last canary
        self._proven = False
        self._request_failed = False
        self._failed_canaries = 0
        self._looked = 0.0
        self._silent = 0.0
        self._error = ""
        self._verdict: EngineVerdict | None = None

    # --- what becomes of calls ----------------------------------------------------------------------
    def started(self, call: Hashable, work: float, kind: Hashable, now: float) -> None:
        """A call begins; `work` in steps of the engine (see PROMPT_TOKENS). Calls of a `kind` take the same code."""
        self._calls[call] = _Call(work, kind, now, now)
        if call == CANARY:
            self._asked = now

    def answered(self, call: Hashable, now: float) -> None:
        """A call was answered, or a part of it, after which it goes on."""
        known = self._calls.get(call)
        if known is not None:
            # Since the last sign, not since its start: it may have waited for others in the engine's own queue.
            observed = (now - max(known.started, self._sign)) / known.work
            self._step = max(observed, self._step + SLOWER * (observed - self._step))
            latency = (now - known.started) / known.work
            self._latency = max(latency, self._latency + SLOWER * (latency - self._latency))
            self._latest, self._latest_part = max(self._latest, known.began), max(self._latest_part, known.started)
            self._kinds.add(known.kind)
            known.started, known.work = now, 1.0
        self._proven |= call == CANARY
        self._answered = now
        self._request_failed, self._failed_canaries = False, 0
        self.sign_of_life(now)

    def failed(self, call: Hashable, error: str, now: float) -> None:
        """A call failed in the engine, with its `error`; that a request is wrong, or was stopped, is none."""
        self._calls.pop(call, None)
        self.sign_of_life(now)
        self._error = one_line(error)
        if self._answered is None:
            return
        if call == CANARY:
            self._failed_canaries += 1
            if self._failed_canaries >= CANARIES and (self._proven or self._request_failed):
                self._find("EngineFailing", self._error)
        elif not self._request_failed:
            self._request_failed = True
            self._failed_canaries *= self._proven

    def sign_of_life(self, now: float) -> None:
        """The engine shows by something else that it works: it may be at work for others."""
        self._sign, self._silent = now, 0.0

    def ended(self, call: Hashable) -> None:
        """A call is over, whatever came of it."""
        self._calls.pop(call, None)

    def stopped(self, message: str) -> None:
        """The engine itself says that it has stopped."""
        self._find("EngineFailing", self._error or one_line(message))

    # --- what follows -------------------------------------------------------------------------------
    def canary_due(self, now: float) -> bool:
        """Whether the canary is to be sent now."""
        if self._verdict or self._answered is None or not self._idle or CANARY in self._calls:
            return False
        if self._request_failed or (self._proven and self._failed_canaries):
            return now - self._asked >= AGAIN
        return now - self._asked >= self._idle and (not self._proven or now - self._answered >= self._idle)

    @property
    def suspicious(self) -> bool:
        """Whether it gave no sign of life for so long that other signs are worth looking for."""
        return self._silent >= SILENCE / 2

    def look(self, now: float) -> EngineVerdict | None:
        """What is known by now; to be called several times a second. A verdict stays."""
        if self._calls:
            self._silent += min(now - self._looked, LONGEST_LOOK)
        else:
            self._silent = 0.0
        self._looked = now
        if self._answered is not None and self._silent >= SILENCE and now >= self._patience():
            self._find("EngineHung", f"no call was answered for {now - self._since():.0f} s, {len(self._calls)} wait")
        return self._verdict

    def lost(self, now: float) -> list[Hashable]:
        """The calls whose answers are lost."""
        return [key for key, call in self._calls.items() if now >= self._lost_at(call) and self._is_overtaken(call)]

    def _lost_at(self, call: _Call) -> float:
        return call.started + max(NEW, TIMES * self._latency * call.work)

    def _is_overtaken(self, call: _Call) -> bool:
        """Whether others were answered that began later; of one that was answered before, other parts."""
        return call.started < self._latest_part if call.started > call.began else call.began < self._latest

    def _since(self) -> float:
        """Since when calls wait and nothing comes."""
        return max(self._sign, min(call.started for call in self._calls.values()))

    def _patience(self) -> float:
        """Until when it may be at work. Calls that began later do not lengthen it: new ones come all the time."""
        end = self._since() + SILENCE
        return max([end, *(self._due(call) for call in self._calls.values() if call.started < end)])

    def _due(self, call: _Call) -> float:
        known = NEW if call.kind not in self._kinds else 0.0
        expected = self._step * call.work
        return call.started + max(known, min(TIMES * expected, TIMES_LONG * expected + NEW))

    def _find(self, reason: Reason, message: str) -> None:
        self._verdict = self._verdict or EngineVerdict(reason, message)


def one_line(message: str) -> str:
    """A message without line breaks, of at most MOST_MESSAGE characters."""
    return " ".join(message.split())[:MOST_MESSAGE]
