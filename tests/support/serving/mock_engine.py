"""A mock engine: a deterministic "model" over token ids that counts its calls and keeps to the contract."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import numpy as np

from tandem_serving.bls.calls import Call, NewTokens, Output
from tandem_serving.bls.loop import SequenceLoop
from tandem_serving.errors import EngineError

Model = Callable[[list[int]], int]
END = 0


def counting(ids: list[int]) -> int:
    """A target model without an end: a function of the whole sequence, ids 1..96."""
    return 1 + (sum(ids) * 31 + len(ids) * 7) % 96


def ending_after(length: int, model: Model = counting) -> Model:
    """The same model, which chooses END once the sequence has `length` tokens."""
    return lambda ids: END if len(ids) >= length else model(ids)


def wrong_every(n: int, model: Model = counting) -> Model:
    """A draft model: right but at every n-th position."""
    return lambda ids: model(ids) + 1 if len(ids) % n == 0 else model(ids)


@dataclass
class MockEngine:
    """Keeps the calls; `fail_at` raises EngineError at that call, `includes_end` returns END as a token.

    `max_seq_len`: as TensorRT-LLM (llmRequest.cpp, validate) it keeps room in it for a call's draft tokens, for
    `max_draft_len` where there are none, and answers with as many fewer tokens.
    """

    model: Model
    end_ids: tuple[int, ...] = (END,)
    includes_end: bool = False
    fail_at: int = -1
    max_seq_len: int = 1 << 30
    max_draft_len: int = 0
    calls: list[Call] = field(default_factory=list)

    def run(self, call: Call) -> Output:
        """Answer as the contract says: one pass over draft ids, or `output_len` tokens."""
        self.calls.append(call._replace(ids=call.ids.copy()))
        if len(self.calls) - 1 == self.fail_at:
            raise EngineError("draft engine: out of order")
        tokens = self._verify(call) if call.draft_ids else self._generate(call)
        room = self.max_seq_len - len(call.ids) - (len(call.draft_ids) or self.max_draft_len)
        return self._output(list(tokens)[: max(room, 0)])

    def _output(self, ids: list[int]) -> Output:
        return Output(ids, log_probs=np.array([-0.5 * t for t in ids], np.float32))

    def _next(self, ids: list[int]) -> int | None:
        token = self.model(ids)
        return None if token in self.end_ids and not self.includes_end else token

    def _generate(self, call: Call) -> Generator[int, None, None]:
        ids = call.ids.tolist()
        for _ in range(call.output_len):
            token = self._next(ids)
            if token is None:
                return
            ids.append(token)
            yield token
            if token in self.end_ids:
                return

    def _verify(self, call: Call) -> Generator[int, None, None]:
        assert call.output_len == len(call.draft_ids) + 1
        for token, drafted in zip(self._generate(call), [*call.draft_ids, None], strict=False):
            yield token
            if token != drafted:
                return


def run_loop(loop: SequenceLoop, target: MockEngine, draft: MockEngine | None, k: int) -> Iterator[NewTokens]:
    """A sequence from its beginning to its end, drafting `k` tokens a round; without its draft once that fails."""
    while not loop.finish:
        call = loop.begin(k if draft else 0)
        if call.role == "draft" and draft:
            try:
                call = loop.drafted(draft.run(call))
            except EngineError:
                draft, call = None, loop.begin(0)
        yield loop.verified(target.run(call))
