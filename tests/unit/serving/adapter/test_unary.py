"""The unary models: how long they wait for the model that answers, and what its client gets then."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from support.serving import pb_utils
from tandem_serving.adapter import engine_unary, unary
from tandem_serving.adapter.engine_unary import EngineUnary
from tandem_serving.adapter.unary import NO_ANSWER, Unary

LONG = 60.0
HANGS, PLAIN = 1, 2
"""First tokens of prompts."""
Calls = list[pb_utils.InferenceRequest]


@dataclass
class Client:
    """A request, and what comes back."""

    tensors: list[pb_utils.Tensor]
    name: str = ""
    gone: bool = False
    response: pb_utils.InferenceResponse | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def inputs(self) -> list[pb_utils.Tensor]:
        return self.tensors

    def request_id(self) -> str:
        return self.name

    def requested_output_names(self) -> list[str]:
        return ["output_ids"]

    def parameters(self) -> str:
        return ""

    def get_response_sender(self) -> "Client":
        return self

    def is_cancelled(self) -> bool:
        return self.gone

    def send(self, response: pb_utils.InferenceResponse, flags: int) -> None:
        self.response = response
        self.over.set()

    def error(self) -> tuple[str, int]:
        """Its error and code; "": it was answered."""
        assert self.over.wait(LONG), "no response"
        assert self.response is not None
        found = self.response.error()
        return (found.message(), found.code()) if found else ("", 0)


def ask(first: int = PLAIN, tokens: int = 4, length: int = 1, name: str = "", **more: Any) -> Client:
    """A request for so many tokens, of a prompt of this length."""
    one = np.ones((1, 1), np.int32)
    arrays = {"input_ids": first * np.ones((1, length), np.int32), "input_lengths": length * one}
    arrays |= {"request_output_len": tokens * one, **more}
    return Client([pb_utils.Tensor(each, array) for each, array in arrays.items()], name)


@dataclass
class Site:
    """A model; `hold`: until then prompts that begin with HANGS get no answer, and `stops` none where it says so."""

    model: Unary
    calls: Calls
    hold: threading.Event = field(default_factory=threading.Event)
    stops_hang: bool = False

    def send(self, *clients: Client) -> None:
        self.model.execute(list(clients))

    def stops(self) -> int:
        return sum("stop" in call.inputs for call in self.calls)

    def engine(self, call: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        if "stop" in call.inputs:
            if self.stops_hang:
                self.hold.wait(LONG)
            return pb_utils.InferenceResponse([])
        if call.inputs["input_ids"].flat[0] == HANGS:
            self.hold.wait(LONG)
        return pb_utils.tensors(output_ids=np.array([[[5]]], np.int32))


Start = Callable[..., Site]


@pytest.fixture
def start(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(unary, "TritonSink", lambda: None)
    monkeypatch.setattr(unary, "LATER", 0.2)
    monkeypatch.setattr(engine_unary, "LATER", 0.2)
    monkeypatch.setattr(unary, "WATCH_SECONDS", LONG)
    sites: list[Site] = []

    def make(kind: type[Unary] = EngineUnary, seconds: float = 300.0) -> Site:
        values = {"decoupled_model_name": "engine", "request_timeout_seconds": str(seconds)}
        parameters = {name: {"string_value": value} for name, value in values.items()}
        made = kind()
        made.initialize({"model_config": json.dumps({"max_batch_size": 8, "parameters": parameters})})
        sites.append(Site(made, calls))
        pb_utils.answers[0] = sites[-1].engine
        return sites[-1]

    yield make
    for site in sites:
        site.hold.set()
        site.model.finalize()


LATE = (f"engine: {NO_ANSWER}", pb_utils.CODES.index("UNAVAILABLE"))


@pytest.mark.parametrize("kind", [Unary, EngineUnary])
@pytest.mark.parametrize("stops_hang", [False, True], ids=["", "and the stop, too"])
def test_a_request_that_is_never_answered_ends_after_its_time(
    start: Start, kind: type[Unary], stops_hang: bool
) -> None:
    site = start(kind, 0.3)
    site.stops_hang = stops_hang
    lost, other = ask(HANGS), ask()
    began = time.monotonic()
    site.send(lost, other)
    assert lost.error() == LATE
    assert time.monotonic() - began >= 0.3 + unary.LATER
    assert other.error() == ("", 0)
    eventually(lambda: site.stops() > 0, "it is stopped")


def eventually(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_an_engine_s_request_ends_where_later_ones_are_answered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_unary, "LEAST_SECONDS", 0.3)
    site = start()
    first, lost = ask(), ask(HANGS)
    site.send(first)
    assert first.error() == ("", 0)
    site.send(lost)
    assert not lost.over.wait(1.0), "it may be at work on it"
    later = ask()
    site.send(later)
    assert later.error() == ("", 0)
    assert lost.error() == LATE


BOUNDS: list[tuple[dict[str, Any], float, str]] = [
    # a request, how many times as long as that of four tokens it may take, why
    ({"tokens": 4}, 1, "the same"),
    ({"tokens": 400}, 100, "more tokens"),
    ({"tokens": 4, "length": 4 * 65}, (4 * 65 + 4 * 65) / (4 * 65 + 1), "a prompt"),
    ({"tokens": 4, "draft_input_ids": np.ones((1, 3), np.int32)}, (65 + 1) / (4 * 65 + 1), "a step for all"),
]


@pytest.mark.parametrize(("request_", "times", "why"), BOUNDS, ids=[why for *_, why in BOUNDS])
def test_how_long_it_may_take_follows_from_what_is_asked_for(
    request_: dict[str, Any], times: float, why: str
) -> None:
    plain, asked = ask().inputs(), ask(**request_).inputs()
    assert engine_unary._work(asked) / engine_unary._work(plain) == pytest.approx(times, rel=0.02), why


def test_a_client_that_leaves_ends_its_call_and_stops_that_hang_are_few(start: Start) -> None:
    site = start()
    site.stops_hang = True
    leaves = ask(HANGS)
    site.send(leaves)
    eventually(lambda: len(site.calls) == 1, "it runs")
    leaves.gone = True
    eventually(lambda: site.stops() == 1, "it is stopped")
    time.sleep(5 * unary.CANCEL_POLL_SECONDS)
    assert site.stops() == 1, "while the engine does not answer that it is asked no more"
    site.hold.set()
    assert leaves.error() == ("", 0)


def test_a_client_s_stop_is_answered_whether_the_engine_answers_it_or_not(start: Start) -> None:
    site = start()
    site.stops_hang = True
    held = ask(HANGS, name="held")
    site.send(held)
    eventually(lambda: len(site.calls) == 1, "it runs")
    stop = ask(name="held", stop=np.array([[True]]))
    site.send(stop)
    assert stop.error() == ("", 0)
    assert site.stops() == 1
