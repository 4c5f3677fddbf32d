"""One sequence in the scheduler: its tokens, and what each iteration adds to them."""

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment, of_row
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.request import Finish, Output, Request, Sink, Stats

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


@dataclass
class _Unsent:
    """Tokens that were not sent yet."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    logits: list[FloatArray] = field(default_factory=list)


class Sequence:
    """State of one request. `tokens[:length]` is prompt and output; `computed` of them have keys and values.

    Draft tokens stand behind `length` until they are verified. Where a pass was given to the backend and its tokens
    were not taken yet, what it computes counts as computed, and one token more is `ahead`.
    """

    def __init__(self, request: Request, sink: Sink) -> None:
        self.request = request
        self.sink = sink
        self.slot = -1
        self.reused = 0
        self.computed = 0
        self.ahead = 0
        self._row = 0
        self.first_scheduled_ns = self._first_token_ns = self._last_token_ns = 0
        self.cancelled = False
        self.finish = Finish.NONE
        draft = request.draft_ids if request.draft_ids is not None else np.empty(0, np.int32)
        self.drafted = len(draft)
        self.wanted_logits = self.drafted + 1  # of the pass over its last pending tokens
        self.accepted = 0
        self.prompt_len = self.length = len(request.input_ids)
        self.tokens: IntArray = np.empty(self.length + max(request.max_new_tokens, self.drafted + 1), np.int32)
        self.tokens[: self.length] = request.input_ids
        self.tokens[self.length : self.length + self.drafted] = draft
        self._unsent = _Unsent()

    @property
    def generated(self) -> int:
        """Tokens of output so far."""
        return self.length - self.prompt_len

    @property
    def pending(self) -> int:
        """Tokens to compute before the next choice."""
        return self.length + self.ahead + self.drafted - self.computed

    @property
    def ending(self) -> bool:
        """Whether the pass ahead is the last, whatever it yields."""
        return self.ahead > 0 and (self.drafted > 0 or self.generated + self.ahead == self.request.max_new_tokens)

    def segment(self, count: int) -> Segment:
        """The next `count` of the pending tokens; logits where they are all."""
        last = count == self.pending
        if self.ahead:
            tokens = np.array([of_row(self._row)], np.int32)
        else:
            tokens = self.tokens[self.computed : self.computed + count]
        return Segment(self.slot, self.computed, tokens, self.wanted_logits if last else 0)

    def choice(self) -> Choice:
        """What this pass's logits are for; to be called where `wanted_logits` of them come."""
        return Choice(self.request, self.tokens, self.length + self.ahead, self.wanted_logits)

    def given(self, segment: Segment, row: int) -> None:
        """The backend has the segment; its logits are the pass's from `row` on."""
        self.computed += len(segment.tokens)
        self.ahead += segment.logits > 0
        self._row = row

    def take(self, pick: Pick) -> None:
        """Add the tokens that `choice` yields: draft tokens that equal them, up to the first that does not."""
        self._last_token_ns = time.monotonic_ns()
        self._first_token_ns = self._first_token_ns or self._last_token_ns
        self.ahead -= 1
        draft = self.tokens[self.length : self.length + self.drafted].tolist() if self.drafted else []
        for row, proposed in enumerate([*draft, -1]):
            chosen = pick(row)
            self._add(chosen)
            if chosen.token == proposed and self.finish != Finish.END_ID:
                self.accepted += 1
            if self.finish or chosen.token != proposed:
                break
        if self.drafted and not self.finish:
            self.finish = Finish.LENGTH
        if self.finish:  # the last token's keys and values are not there, or a rejected draft token's
            self.computed = self.length if self.finish == Finish.END_ID else self.length - 1

    def _add(self, chosen: Chosen) -> None:
        """Add a token to the output and see whether it is the last; an end itself is not output."""
        if chosen.token == self.request.end_id or chosen.token in self.request.more_ends:
            self.finish = Finish.END_ID
            return
        self.tokens[self.length] = chosen.token
        self.length += 1
        self._unsent.tokens.append(chosen.token)
        if self.request.log_probs:
            self._unsent.log_probs.append(chosen.log_prob)
        if chosen.logits is not None:
            self._unsent.logits.append(chosen.logits)
        if self.request.stop_words and self._at_stop_word():
            self.finish = Finish.STOP
        elif self.generated == self.request.max_new_tokens:
            self.finish = Finish.LENGTH

    def _at_stop_word(self) -> bool:
        """Whether the sequence, prompt included, ends with a stop word."""
        return any(
            len(word) <= self.length and tuple(self.tokens[self.length - len(word) : self.length].tolist()) == word
            for word in self.request.stop_words
        )

    def flush(self, error: str = "") -> None:
        """Send what is due: at the end everything, before it only with streaming."""
        if not (self.finish or self.request.streaming):
            return
        unsent, self._unsent = self._unsent, _Unsent()
        times = (self.first_scheduled_ns, self._first_token_ns, self._last_token_ns)
        stats = Stats(self.reused, self.drafted, self.accepted, self.computed, *times)
        self.sink(Output(unsent.tokens, unsent.log_probs, unsent.logits, self.finish, stats, error))
