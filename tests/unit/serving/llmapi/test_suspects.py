"""Requests that end the engine are recognised after its restart; others are not taken for such ones."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.serving.llmapi import HANGS, STREAM, Site, Start, eventually
from tandem_serving import metrics as m
from tandem_serving.engine.health import CANARY_PROMPT
from tandem_serving.errors import EngineError, RequestError, ServingError
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest, Lora
from tandem_serving.llmapi.suspects import FILE, Suspects, digest, read

ASKED = LlmApiRequest(())


def die(site: Site) -> None:
    """The engine ends, and with it the container."""
    eventually(lambda: bool(site.engine.calls), "a request runs")
    site.engine.alive = False
    assert site.ended.wait(60)


def test_a_request_that_ends_the_engine_twice_is_refused_from_then_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        site = start()
        site.ask(HANGS, **STREAM)
        die(site)
    site = start()
    error = site.ask(b"x", HANGS).wait().error
    assert error and error.code == "INVALID_ARG", "it is no server's fault: clients do not send it again"
    assert "the engine ended 2 times while this request ran" in str(error)
    assert site.engine.calls == []
    assert "it is refused" in caplog.text
    assert site.ask(b"x", max_tokens=8).wait().error is None
    eventually(lambda: site.sink.values.get("tandem_poison_requests_total") == 2, "counted")
    site.ask(HANGS, max_tokens=7)
    taken = site.engine.calls
    eventually(lambda: any(call.prompt.sampling["max_tokens"] == 7 for call in taken), "another request is taken")


def test_the_canary_and_the_startup_probe_are_never_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = CANARY_PROMPT.encode()
    monkeypatch.setattr("support.serving.llmapi.HANGS", probe)
    for _ in range(3):
        site = start()
        answer = site.ask(probe, max_tokens=4)
        die(site)
    error = answer.wait().error
    assert error and error.code == "UNAVAILABLE", "the engine's end"


class Pod:
    """Processes one after the other, on the same volume; each runs some sequences and dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> Suspects:
        self.suspects = Suspects(self.folder, m.Metrics())
        return self.suspects

    async def run(self, text: str, error: BaseException | None = None) -> None:
        with suppress(*([type(error)] if error else [])):
            async with self.suspects.run(prompt(text), ASKED):
                if error:
                    raise error

    def deaths(self) -> dict[str, int]:
        known = read(self.folder / FILE)
        return {text: known[key] for text in "abcde" if (key := digest(prompt(text), ASKED)) in known}


def prompt(text: str, **sampling: Any) -> LlmApiPrompt:
    return LlmApiPrompt(0, text, list(text.encode()), sampling)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


ENGINE = EngineError("no blocks")


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (lambda pod: pod.run("a"), "it was answered"),
        (lambda pod: pod.run("a", RequestError("wrong")), "the engine refused it"),
        (lambda pod: pod.run("a", asyncio.CancelledError()), "its client left"),
        (lambda pod: pod.run("a", ZeroDivisionError()), "a fault of ours"),
        (lambda pod: both(pod.run("a", ENGINE), pod.run("b")), "the engine goes on"),
    ],
)
async def test_what_is_over_before_the_engine_ends_is_innocent(
    pod: Pod, ends: Callable[[Pod], Any], reason: str
) -> None:
    await ends(pod)
    assert pod.deaths() == {}, reason


async def both(*runs: Any) -> None:
    for run in runs:
        await run


async def test_what_runs_or_fails_as_the_engine_ends_has_a_death(pod: Pod) -> None:
    async with pod.suspects.run(prompt("a"), ASKED):
        await pod.run("b", ENGINE)
        pod.suspects.freeze()
        await pod.run("c", asyncio.CancelledError())
        assert pod.deaths() == {"a": 1, "b": 1, "c": 1}
    assert pod.deaths() == {"a": 1, "b": 1, "c": 1}, "its end comes of the engine's"
    pod.start()
    assert pod.deaths() == {"a": 1, "b": 1, "c": 1}, "once"


async def test_an_answer_forgets_deaths_and_other_ends_do_not(pod: Pod) -> None:
    for text in "ab":
        await pod.run(text, ENGINE)
    pod.start()
    await pod.run("a", asyncio.CancelledError())
    await pod.run("b")
    assert pod.deaths() == {"a": 1}
    await pod.run("c", ENGINE)
    assert pod.deaths() == {"a": 1, "c": 1}, "in a place that is free"


async def test_suspects_begin_one_at_a_time_and_others_when_they_come(pod: Pod) -> None:
    for text in "ab":
        await pod.run(text, ENGINE)
    pod.start()
    begun, answered = list[str](), {text: asyncio.Event() for text in "abc"}

    async def run(text: str) -> None:
        with suppress(ServingError):
            async with pod.suspects.run(prompt(text), ASKED) as turn:
                begun.append(text)
                answer = turn.until_first(lambda: None)
                await answered[text].wait()
                answer()
                await asyncio.Event().wait()

    running = [asyncio.create_task(run(text)) for text in "abc"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sorted(begun) == ["a", "c"]
    assert pod.deaths() == {"a": 2, "b": 1, "c": 1}, "if the engine ended now: b has not begun"
    answered["a"].set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert sorted(begun) == ["a", "b", "c"], "though a is not over"
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_the_same_request_twice_at_once_is_one_suspect(pod: Pod) -> None:
    async with pod.suspects.run(prompt("a"), ASKED):
        await pod.run("a")
        assert pod.deaths() == {"a": 1}, "the other one runs"
    assert pod.deaths() == {}


def test_what_makes_a_request() -> None:
    plain = digest(prompt("a", temperature=0.5), ASKED)
    assert digest(prompt("a", temperature=0.5, seed=7), ASKED) == plain, "drawn anew where a client sends none"
    lora = LlmApiPrompt(0, "a", [97], {"temperature": 0.5}, lora=Lora(1, "sql", "/adapters/sql", "hf"))
    others = [
        (prompt("b", temperature=0.5), ASKED),
        (prompt("a", temperature=0.6), ASKED),
        (prompt("a", temperature=0.5), LlmApiRequest((), prompt_log_probs=True)),
        (lora, ASKED),
    ]
    assert plain not in {digest(*each) for each in others}


async def test_a_file_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Pod(tmp_path / "missing")
    await pod.run("a", ENGINE)
    assert "will not be recognised" in caplog.text


def test_a_file_that_was_cut_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\x01" * 33)
    assert Suspects(tmp_path, m.Metrics()) and read(tmp_path / FILE) == {}
