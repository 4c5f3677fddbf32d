from collections.abc import Callable

from tandem_serving.llmapi.chunks import LlmApiChunk, LlmApiSummary, RequestMetrics
from tandem_serving.llmapi.outbox import Outbox


class Queue:
    """Work that waits, and whether it is a sequence's first."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.first: list[bool] = []

    def put(self, work: Callable[[], None], first: bool) -> None:
        self.work.append(work)
        self.first.append(first)

    def do(self) -> None:
        self.work.pop(0)()


def test_chunks_that_wait_are_sent_as_one() -> None:
    queue, sent = Queue(), list[LlmApiChunk]()
    outbox = Outbox(queue.put, sent.append)
    outbox.add(LlmApiChunk(1, "a", [1]))
    queue.do()
    outbox.add(LlmApiChunk(1, "b", [2, 3]))
    outbox.add(LlmApiChunk(1, "", []))
    end = LlmApiSummary(2, 4, RequestMetrics(draft_tokens=4, accepted_draft_tokens=2))
    outbox.add(LlmApiChunk(1, "c", [4], "stop", "c", -0.5, end))
    assert len(queue.work) == 1
    queue.do()
    assert sent == [LlmApiChunk(1, "a", [1]), LlmApiChunk(1, "bc", [2, 3, 4], "stop", "c", -0.5, end)]
    assert queue.first == [True, False], "only a sequence's first chunk goes before those of others"
