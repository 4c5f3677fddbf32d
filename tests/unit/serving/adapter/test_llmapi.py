"""The LLM-API model over a made-up kind of engine, whose module alone decides all that is the engine's."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.serving import pb_utils
from support.serving.llmapi import CODEC, Sink, eventually
from tandem_serving.adapter.llmapi import LlmApiResponder, start_service
from tandem_serving.adapter.responder import dispatch
from tandem_serving.checkpoint import ModelLimits
from tandem_serving.engine import failure
from tandem_serving.errors import EngineError, RequestError
from tandem_serving.llmapi import engines
from tandem_serving.llmapi import service as services
from tandem_serving.llmapi.chunks import RequestMetrics, SequenceOutput
from tandem_serving.llmapi.engine import ArgumentsRefused, EngineKind, LlmApiEngine
from tandem_serving.llmapi.request import Features, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.service import LlmApiService
from tandem_serving.llmapi.statistics import FAMILIES, EngineFamilies, EngineState, families
from tandem_serving.requests.request_parameters import KnownParameters

ENDS = {"eos": "stop", "full": "length"}
"""The engine's own reasons, and those of answers."""
UNLUCKY = 13


@dataclass
class MadeUpCall:
    """An "a" for each token that is asked for, until "eos"; after eight it is "full"."""

    tokens: int

    def abort(self) -> None:
        """Nothing to give up."""

    async def __aiter__(self) -> AsyncIterator[SequenceOutput]:
        await asyncio.sleep(0.1)  # in which its state is asked for
        if self.tokens == UNLUCKY:
            raise EngineError("Made-up ran out of luck")
        count, reason = (self.tokens, "eos") if self.tokens < 8 else (8, "full")
        yield SequenceOutput([97] * count, ENDS[reason], metrics=RequestMetrics(2.0, 6, 3))


@dataclass
class MadeUpEngine:
    """It keeps its own sampling parameters."""

    arguments: Mapping[str, Any]
    name: str = "Made-up"
    codec = CODEC
    families = families("made_up", "Made-up")
    sampled: list[dict[str, Any]] = field(default_factory=list)
    alive: bool = True

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> MadeUpCall:
        """Its own names, and a guide that it does not have."""
        if prompt.guide:
            raise RequestError(f"Made-up has no {prompt.guide.kind}: leave it out")
        self.sampled.append({"heat": prompt.sampling.get("temperature", 0.0)})
        return MadeUpCall(prompt.sampling["max_tokens"])

    async def states(self) -> AsyncIterator[EngineState]:
        """Three of four blocks."""
        yield EngineState(requests=1, blocks=4, used=3)

    def error(self) -> str:
        """What ended it."""
        return "ran out of luck"

    def healthy(self) -> bool:
        """What a test says."""
        return self.alive

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class MadeUp:
    """The kind."""

    name: str = "Made-up"
    families: EngineFamilies = FAMILIES
    loaded: list[MadeUpEngine] = field(default_factory=list)

    def limits(self, arguments: Mapping[str, Any]) -> ModelLimits:
        """Of an argument of its own."""
        return ModelLimits(arguments["longest"], 256)

    def features(self, arguments: Mapping[str, Any]) -> Features:
        """It is asked for guides, which it refuses by itself."""
        return Features(guided_decoding=True)

    def reports_drafts(self, arguments: Mapping[str, Any]) -> bool:
        """By an argument of its own."""
        return bool(arguments.get("guesses"))

    def with_drafter(
        self, arguments: Mapping[str, Any], drafter: object, resource_manager: object | None
    ) -> dict[str, Any]:
        """Under a name of its own."""
        return {**arguments, "guesser": drafter}

    def split(self, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """Over none."""
        return 1, 1

    def missing_code(self, folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> str:
        """It runs none."""
        return ""

    def dry_run(self, arguments: Mapping[str, Any]) -> None:
        """It takes no `dtype`."""
        if "dtype" in arguments:
            raise ArgumentsRefused("Made-up knows no dtype: leave it out")

    def run_ranks(self, arguments: Mapping[str, Any]) -> None:
        """It has no group."""

    def load(self, arguments: Mapping[str, Any]) -> LlmApiEngine:
        """Nothing is read."""
        self.loaded.append(MadeUpEngine(arguments))
        return self.loaded[-1]


class Request:
    """A client's request, as Triton passes it on; `sent`: the responses."""

    def __init__(self, **tensors: Any) -> None:
        self._tensors = [pb_utils.Tensor(name, np.array([value])) for name, value in tensors.items()]
        self.sent: list[pb_utils.InferenceResponse] = []
        self._over = threading.Event()

    def inputs(self) -> list[pb_utils.Tensor]:
        return self._tensors

    def request_id(self) -> str:
        return ""

    def requested_output_names(self) -> list[str]:
        return ["text_output", "finish_reason", "total_draft_tokens"]

    def parameters(self) -> str:
        return "{}"

    def get_response_sender(self) -> "Request":
        return self

    def is_cancelled(self) -> bool:
        return False

    def send(self, response: pb_utils.InferenceResponse, flags: int) -> None:
        self.sent.append(response)
        if flags:
            self._over.set()

    def answer(self) -> dict[str, Any]:
        """Its one response, by output; an error's message as `error`."""
        assert self._over.wait(60)
        (response,) = self.sent
        if error := response.error():
            return {"error": error.message()}
        return {tensor.name(): tensor.as_numpy().item() for tensor in response.output_tensors()}


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    made = MadeUp()
    checked: EngineKind = made
    monkeypatch.setitem(sys.modules, "made_up_engine", SimpleNamespace(ENGINE=checked))
    monkeypatch.setitem(engines.ENGINES, "Made-up", "made_up_engine")
    return made


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an engine's failure is published."""
    path = tmp_path / "failure.json"
    monkeypatch.setenv(failure.VARIABLE, str(path))
    return path


def parameters(folder: Path, arguments: str = "", engine: str = "Made-up") -> dict[str, str]:
    (folder / "llm_args.yaml").write_text(f"model: {folder}\nlongest: 32\n{arguments}")
    return {"llm_args_path": str(folder / "llm_args.yaml"), "engine": engine, "canary_seconds": "0"}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set where the process would end."""
    event = threading.Event()
    monkeypatch.setattr(LlmApiService, "guard", partialmethod(LlmApiService.guard, event.set))
    return event


@contextmanager
def watched(service: LlmApiService) -> Iterator[Sink]:
    """While its metrics go to a sink."""
    sink = Sink()
    watching = threading.Thread(target=service.watch, args=(sink,))
    watching.start()
    try:
        yield sink
    finally:
        service.close()
        watching.join()


def ask(service: LlmApiService, tokens: int, **more: Any) -> dict[str, Any]:
    request = Request(text_input=b"xy", sampling_param_max_tokens=tokens, **more)
    dispatch(service, request, LlmApiResponder(request), KnownParameters())
    return request.answer()


SILENT = {"sampling_param_exclude_input_from_output": True}
HOT = {**SILENT, "sampling_param_temperature": 0.5}
COUNTED = "tandem_spec_decode_num_draft_tokens_total"


@pytest.mark.usefixtures("ended")
def test_its_module_decides_what_is_the_engine_s(
    kind: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "STATE_SECONDS", 0.01)
    service = start_service(parameters(tmp_path, "guesses: 3\n"))
    with watched(service) as sink:
        (engine,) = kind.loaded
        assert engine.arguments == {"model": str(tmp_path), "longest": 32, "guesses": 3}
        told = {"total_draft_tokens": 6}
        assert ask(service, 4, **SILENT) == {"text_output": b"aaaa", "finish_reason": b"stop", **told}
        assert ask(service, 20, **HOT) == {"text_output": b"a" * 8, "finish_reason": b"length", **told}
        assert engine.sampled == [{"heat": 0.0}, {"heat": 0.5}]
        assert "more than the model's limit of 32" in ask(service, 31)["error"]
        assert ask(service, 4, guided_decoding_guide_type=b"json") == {"error": "Made-up has no json: leave it out"}
        assert ask(service, UNLUCKY) == {"error": "Made-up ran out of luck"}
        eventually(lambda: sink.values.get(COUNTED) == 12, "its counts of drafts")
        eventually(lambda: sink.values.get("made_up_kv_cache_block_metrics max") == 4, "its state")


def test_its_name_is_in_reports(
    kind: MadeUp, tmp_path: Path, report: Path, ended: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(start_service(parameters(tmp_path))):
        kind.loaded[0].alive = False
        assert ended.wait(60)
    reported = json.loads(report.read_text())["engineFailure"]
    assert (reported["model"], reported["message"]) == ("Made-up", "ran out of luck")
    assert "Made-up: EngineFailing" in caplog.text


def test_its_own_checks_come_before_it_is_loaded(kind: MadeUp, tmp_path: Path, report: Path) -> None:
    with pytest.raises(ArgumentsRefused, match="Made-up knows no dtype"):
        start_service(parameters(tmp_path, "dtype: int4\n"))
    assert json.loads(report.read_text())["engineFailure"]["model"] == "Made-up"
    assert not kind.loaded


def test_a_kind_that_is_not_registered(tmp_path: Path) -> None:
    with pytest.raises(
        engines.UnknownEngineError, match="'SGLang', which this image does not know: write one of TensorRT-LLM"
    ):
        start_service(parameters(tmp_path, engine="SGLang"))
