import queue
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine.backend import Segment
from reference_engine.choice import Choice, Pick
from reference_engine.engine import Engine, EngineStopped
from reference_engine.request import Finish, Output, Request, RequestError
from reference_engine.scheduler import Capacity, Scheduler
from unit.reference_engine import feeding, tiny_llama

PROMPT = np.arange(20, dtype=np.int32)
SECONDS = 120


def collect(outputs: "queue.Queue[Output]") -> list[Output]:
    """Outputs up to the last."""
    result = [outputs.get(timeout=SECONDS)]
    while not result[-1].finish:
        result.append(outputs.get(timeout=SECONDS))
    return result


def test_many_threads_get_what_one_would() -> None:
    engine = Engine(tiny_llama.scheduler(slots=8))
    results: dict[int, list[int]] = {}

    def ask(start: int) -> None:
        outputs: queue.Queue[Output] = queue.Queue()
        engine.submit(Request(PROMPT[start:], 10), outputs.put)
        results[start] = collect(outputs)[-1].tokens

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    engine.close()
    alone = tiny_llama.scheduler()
    for start in range(16):
        expected: list[Output] = []
        alone.submit(Request(PROMPT[start:], 10), expected.append)
        while not alone.idle:
            alone.step()
        assert results[start] == expected[0].tokens


def test_a_cancelled_request_ends_and_the_engine_goes_on() -> None:
    engine = Engine(tiny_llama.scheduler())
    outputs: queue.Queue[Output] = queue.Queue()
    cancelled = threading.Event()

    def put(output: Output) -> None:
        outputs.put(output)
        assert cancelled.wait(SECONDS)  # else it may be over before this thread goes on

    call = engine.submit(Request(PROMPT, 200, streaming=True), put)
    outputs.get(timeout=SECONDS)
    engine.cancel(call)
    cancelled.set()
    assert collect(outputs)[-1].finish == Finish.CANCELLED
    engine.submit(Request(PROMPT, 2), outputs.put)
    assert collect(outputs)[-1].finish == Finish.LENGTH
    engine.close()


def test_bad_requests_are_told_to_the_caller() -> None:
    engine = Engine(tiny_llama.scheduler())
    with pytest.raises(RequestError, match="request_output_len is 0"):
        engine.submit(Request(PROMPT, 0), lambda _: None)
    engine.close()


def test_rows_are_taken_all_or_none() -> None:
    engine = Engine(tiny_llama.scheduler())
    outputs: queue.Queue[Output] = queue.Queue()
    with pytest.raises(RequestError, match="row 1: request_output_len is 0"):
        engine.submit_all([(Request(PROMPT, 2), outputs.put), (Request(PROMPT, 0), outputs.put)])
    engine.submit_all([(Request(PROMPT, 1), outputs.put), (Request(PROMPT[1:], 3), outputs.put)])
    assert sorted(len(outputs.get(timeout=SECONDS).tokens) for _ in range(2)) == [1, 3]
    engine.close()
    assert outputs.empty()


def test_closing_ends_what_runs() -> None:
    engine = Engine(tiny_llama.scheduler())
    outputs: queue.Queue[Output] = queue.Queue()
    engine.submit(Request(PROMPT, 230, streaming=True), outputs.put)
    outputs.get(timeout=SECONDS)
    engine.close()
    assert collect(outputs)[-1].finish in (Finish.ERROR, Finish.LENGTH)
    with pytest.raises(EngineStopped, match="restart the server"):
        engine.submit(Request(PROMPT, 1), outputs.put)


def test_an_idle_engine_gets_its_first_pass_from_who_brings_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the backend goes on by itself; all other passes are the engine's."""
    scheduler, model = feeding.scheduler()
    givers: list[bool] = []
    forward, ours = model.forward, threading.current_thread()

    def noted(segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        givers.append(threading.current_thread() is ours)
        return forward(segments)

    monkeypatch.setattr(model, "forward", noted)
    engine = Engine(scheduler)
    outputs: queue.Queue[Output] = queue.Queue()
    for _ in range(2):
        engine.submit(Request(PROMPT, 3), outputs.put)
        assert len(collect(outputs)[-1].tokens) == 3
    engine.close()
    assert len(givers) == 6
    assert givers[0]
    assert not any(givers[1:3])


class BrokenModel:
    """A forward pass that fails."""

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        raise FloatingPointError("broken")

    def choose(self, logits: npt.NDArray[np.float32], choices: Sequence[Choice]) -> list[Pick]:
        raise AssertionError("no logits to choose from")

    def feeds(self, choices: Sequence[Choice]) -> bool:
        return True

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        raise AssertionError("nothing to copy")


def test_an_error_in_the_model_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", logged.append)
    engine = Engine(Scheduler(BrokenModel(), Capacity(64, 2, 256), 97))
    outputs: queue.Queue[Output] = queue.Queue()
    engine.submit(Request(PROMPT, 5), outputs.put)
    [output] = collect(outputs)
    assert output.finish == Finish.ERROR
    assert "its log says which" in output.error
    with pytest.raises(EngineStopped, match="restart the server"):
        engine.submit(Request(PROMPT, 5), outputs.put)
    engine.close()
    assert [str(each.exc_value) for each in logged] == ["broken"]
