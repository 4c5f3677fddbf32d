"""Services with mock engines on real threads, no Triton: what their tests share. Fixtures are in conftest.py."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.serving.answer import Answer as AnyAnswer
from support.serving.mock_engine import MockEngine, Model, counting, wrong_every
from tandem_serving import metrics as m
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import Output, Part, Role
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.sequence import BlsSequence, EngineInputs
from tandem_serving.bls.service import BlsService
from tandem_serving.errors import EngineError
from tandem_serving.requests.tensors import Array


class Answer(AnyAnswer[BlsChunk]):
    """With the chunks of one prompt."""

    def of(self, index: int) -> list[BlsChunk]:
        """The chunks of the prompt with this index."""
        return [chunk for chunk in self.chunks if chunk.batch_index == index]


OFTEN_RIGHT = wrong_every(3)


@dataclass
class MockModel:
    """An engine of the runner: rows of a call are answered together, by a mock engine each."""

    role: Role
    model: Model
    before: Callable[[str, "MockCall"], object]
    calls: list["MockCall"] = field(default_factory=list)

    def call(self, rows: Sequence[Row[BlsSequence]]) -> "MockCall":
        """An engine call, which is kept."""
        self.calls.append(MockCall(self, rows))
        return self.calls[-1]


@dataclass
class MockCall:
    """An engine call, answered by the mock engine."""

    engine: MockModel
    rows: Sequence[Row[BlsSequence]]
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        self.engine.before(self.engine.role, self)
        engine = MockEngine(self.engine.model, end_ids=())
        yield [(index, engine.run(row.call)) for index, row in enumerate(self.rows)]

    def stop(self) -> None:
        """End the call."""
        self.stopped.set()


@dataclass
class MockStreams:
    """The target for calls whose tokens are read while they run; `before` runs at each token, with their number so
    far."""

    model: Model
    before: Callable[["MockStream", int], object] = lambda call, tokens: None
    calls: list["MockStream"] = field(default_factory=list)
    parts: "queue.SimpleQueue[Part]" = field(default_factory=queue.SimpleQueue)
    broken: bool = False

    def call(self, rows: Sequence[Row[BlsSequence]]) -> "MockStream":
        """A call, which is kept."""
        [row] = rows
        self.calls.append(MockStream(self, row))
        return self.calls[-1]

    def read(self) -> list[Part]:
        """What came, one part at a time."""
        if self.broken:
            raise EngineError("streams engine: broken")
        try:
            return [self.parts.get(timeout=0.02)]
        except queue.Empty:
            return []


@dataclass
class MockStream:
    """A streaming call, answered by the mock engine."""

    engine: MockStreams
    row: Row[BlsSequence]
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        tokens = MockEngine(self.engine.model, end_ids=()).run(self.row.call).ids
        for i, token in enumerate(tokens):
            self.engine.before(self, i)
            if self.stopped.is_set():
                tokens = tokens[:i]
                break
            self.engine.parts.put(Part(self.row.stream, i, [token]))
            while not (self.engine.parts.empty() or self.engine.broken):
                time.sleep(0.001)
        yield [(0, Output(tokens))]

    def stop(self) -> None:
        """End the call."""
        self.stopped.set()


class MockEngines:
    """Both engines; `before` runs at each call. The target can stream where there are `streams`."""

    def __init__(
        self,
        target_model: Model = counting,
        draft_model: Model = OFTEN_RIGHT,
        before: Callable[[str, MockCall], object] = lambda role, call: None,
        streams: bool = False,
    ) -> None:
        self.streams = MockStreams(target_model) if streams else None
        self.target = MockModel("target", target_model, before)
        self.draft = MockModel("draft", draft_model, before)


NO_TENSORS: dict[Role, EngineInputs] = {"target": EngineInputs({}), "draft": EngineInputs({})}


@dataclass
class Sink:
    """Metrics as the server would have them."""

    values: dict[str, float] = field(default_factory=dict)
    labelled: dict[tuple[str, m.Labels], float] = field(default_factory=dict)

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        """Add to a counter."""
        self.labelled[family.name, labels] = self.labelled.get((family.name, labels), 0) + value
        self.values[family.name] = self.values.get(family.name, 0) + value

    def set(self, family: m.Family, value: float) -> None:
        """Set a gauge."""
        self.values[family.name] = value


Start = Callable[..., BlsService]


def tensors(*prompts: str, max_tokens: int = 20, **more: Array) -> dict[str, Array]:
    """A request's inputs."""
    rows = len(prompts)
    return {
        "text_input": np.array([[p.encode()] for p in prompts], np.object_),
        "max_tokens": np.full((rows, 1), max_tokens, np.int32),
        "exclude_input_in_output": np.ones((rows, 1), np.bool_),
        **more,
    }


STREAM: dict[str, Any] = {"stream": np.array([[True]])}
ALONE_ROWS: dict[str, Any] = {"num_draft_tokens": np.zeros((2, 1), np.int32)}
ALONE: dict[str, Any] = {"num_draft_tokens": np.array([[0]], np.int32)}


def ask(service: BlsService, inputs: dict[str, Array], request_id: str = "") -> Answer:
    """Send a request; what its client gets."""
    answer = Answer()
    service.submit(inputs, request_id, answer)
    return answer


def text(chunks: list[BlsChunk]) -> str:
    """The text of these chunks."""
    return "".join(chunk.text for chunk in chunks)


class NoText:
    """Stands for a sequence's text, which does not matter here."""

    over = False
