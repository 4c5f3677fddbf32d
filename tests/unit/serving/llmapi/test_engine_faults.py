"""An engine that fails or hangs ends the process; a request that fails does not."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from support.serving.llmapi import (
    FAILS,
    FakeCall,
    FakeEngine,
    Start,
    eventually,
)
from tandem_serving.errors import EngineError
from tandem_serving.llmapi.chunks import SequenceOutput


def test_a_dead_engine_takes_nothing(start: Start) -> None:
    site = start()
    site.engine.alive = False
    eventually(lambda: not site.service.healthy, "noticed")
    error = site.ask(b"x").wait().error
    assert error and error.code == "UNAVAILABLE"
    assert site.engine.calls == []
    assert site.ended.wait(60), "and does not stay for ever"


def test_an_engine_whose_health_cannot_be_told_is_dead(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    site = start()
    site.engine.healthy = lambda: 1 / 0 > 0  # type: ignore[method-assign]
    eventually(lambda: not site.service.healthy, "noticed")
    assert "ZeroDivisionError" in caplog.text


CUDA = "the engine failed at this request: CUDA runtime error: an illegal memory access was encountered"


def break_down(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, hangs: bool = False) -> None:
    """As after a CUDA error: all sequences fail, or none gets on, and the engine calls itself well."""

    async def respond(call: FakeCall) -> AsyncIterator[SequenceOutput]:
        if hangs:
            await asyncio.sleep(3600)
        raise EngineError(CUDA)
        yield

    monkeypatch.setattr(FakeCall, "__aiter__", respond)


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
@pytest.mark.parametrize("idle", [False, True], ids=["requests", "idle"])
def test_an_engine_that_breaks_ends_the_process(
    start: Start, monkeypatch: pytest.MonkeyPatch, hangs: bool, idle: bool
) -> None:
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    monkeypatch.setattr("tandem_serving.engine.health.SILENCE", 1.0)
    site = start(canary=0.1)
    site.ask(b"x").wait()
    eventually(lambda: len(site.engine.calls) > 1, "the canary asks")
    time.sleep(0.2)
    break_down(site.engine, monkeypatch, hangs)
    asked = None if idle else site.ask(b"x")
    assert site.ended.wait(60)
    error = site.ask(b"x").wait().error
    assert error and error.code == "UNAVAILABLE"
    assert ("the engine hangs" if hangs else CUDA) in str(error)
    if asked:
        assert asked.wait().error, "what was in flight has ended"
    assert site.engine.alive, "it says nothing itself"


def test_one_prompt_that_always_fails_ends_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    site = start(canary=0.1)
    site.ask(b"x").wait()
    for _ in range(50):
        assert str(site.ask(FAILS).wait().error) == "no blocks"
    assert site.ask(b"x").wait().error is None
    assert site.service.healthy
    assert not site.ended.is_set()
