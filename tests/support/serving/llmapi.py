"""The LLM-API service on a fake engine."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.serving.answer import Answer
from tandem_serving import metrics as m
from tandem_serving.errors import EngineError
from tandem_serving.llmapi.chunks import LlmApiChunk, RequestMetrics, SequenceOutput
from tandem_serving.llmapi.request import Codec, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.service import LlmApiService
from tandem_serving.llmapi.statistics import FAMILIES, EngineFamilies, EngineState

FAILS, BREAKS, PANICS, DROPPED, HANGS = b"fails", b"breaks", b"panics", b"dropped", b"hangs"
FAILED = "the server failed at this request; its log says why"
CODEC = Codec(
    encode=lambda text: list(text.encode()),
    decode=lambda ids: bytes(ids).decode(errors="replace"),
    longest_token=1,
    special=lambda words: {},
)


class Panic(BaseException):
    """As libraries in Rust raise it."""


@dataclass
class FakeCall:
    """Two tokens a response, until max_tokens; the prompt asks for faults."""

    prompt: LlmApiPrompt
    aborted: bool = False
    over: bool = False

    def abort(self) -> None:
        """Give the sequence up."""
        self.aborted = not self.over

    async def __aiter__(self) -> AsyncIterator[SequenceOutput]:
        if bytes(self.prompt.ids) == FAILS:
            raise EngineError("no blocks")
        if bytes(self.prompt.ids) == BREAKS:
            raise ZeroDivisionError
        if bytes(self.prompt.ids) == PANICS:
            raise Panic("out of bounds")
        if bytes(self.prompt.ids) == DROPPED:
            raise asyncio.CancelledError
        length = self.prompt.sampling["max_tokens"]
        for end in range(2, length + 2, 2):
            await asyncio.sleep(3600 if bytes(self.prompt.ids) == HANGS else 0.001)
            self.over = end >= length
            yield SequenceOutput(
                [ord("a")] * min(end, length), "length" if self.over else "", metrics=RequestMetrics(2.0)
            )


@dataclass
class FakeEngine:
    """An engine that keeps its calls."""

    codec: Codec = CODEC
    name: str = "Fake"
    families: EngineFamilies = FAMILIES
    calls: list[FakeCall] = field(default_factory=list)
    alive: bool = True
    closed: bool = False
    reports: list[Callable[[], EngineState]] = field(default_factory=list)

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> FakeCall:
        """Start a sequence."""
        self.calls.append(FakeCall(prompt))
        return self.calls[-1]

    async def states(self) -> AsyncIterator[EngineState]:
        """What `reports` make."""
        for state in self.reports:
            yield state()

    def error(self) -> str:
        """What ended it."""
        return ""

    def healthy(self) -> bool:
        """What the engine itself reports."""
        return self.alive

    def close(self) -> None:
        """End the engine."""
        self.closed = True


class Sink:
    """Metrics as the server would have them, kinds of requests and blocks apart."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, family: m.Family, labels: m.Labels, value: float) -> None:
        """Add to a counter or gauge."""
        name = " ".join((family.name, *(value for key, value in labels if key.endswith("_type"))))
        self.values[name] = self.values.get(name, 0) + value

    def set(self, family: m.Family, value: float) -> None:
        """Set a gauge."""
        self.values[family.name] = value


@dataclass
class Site:
    """A service on a fake engine; `ended`: set where the process would end."""

    service: LlmApiService
    engine: FakeEngine
    sink: Sink
    ended: threading.Event

    def ask(self, *prompts: bytes, max_tokens: int = 6, request_id: str = "", **more: Any) -> Answer[LlmApiChunk]:
        """Send a request; what its client gets."""
        answer = Answer[LlmApiChunk]()
        tensors: dict[str, Any] = {
            "text_input": np.array(prompts, np.object_),
            "sampling_param_max_tokens": np.array([max_tokens], np.int32),
            "sampling_param_exclude_input_from_output": np.array([True]),
            **more,
        }
        self.service.submit(tensors, request_id, answer)
        return answer


Start = Callable[..., Site]


def eventually(reached: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


STREAM: dict[str, Any] = {"streaming": np.array([True])}
