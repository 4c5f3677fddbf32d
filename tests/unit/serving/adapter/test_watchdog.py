"""Calls that never return end the process; others, however many or slow, do not."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tandem_serving.adapter import watchdog as watchdogs
from tandem_serving.adapter.watchdog import LOOKS, Watchdog


@pytest.fixture
def watchdog() -> Watchdog:
    made = Watchdog(end=lambda: pytest.fail("nothing is stuck"))
    made._start = lambda: None  # type: ignore[method-assign]  # the tests look themselves
    return made


def test_a_call_that_never_returns_is_found(watchdog: Watchdog) -> None:
    with watchdog:
        assert [watchdog.look() for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]


def test_calls_one_after_the_other_are_not_one(watchdog: Watchdog) -> None:
    for _ in range(2 * LOOKS):
        with watchdog:
            assert not watchdog.look()


def test_a_slow_call_starts_from_nothing_after_one_that_was_slow(watchdog: Watchdog) -> None:
    for _ in range(3):
        with watchdog:
            assert not any(watchdog.look() for _ in range(LOOKS - 1))
        assert not watchdog.look()


def test_threads_are_told_apart(watchdog: Watchdog) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with watchdog:
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=stay)
    other.start()
    entered.wait(60)
    found = []
    for _ in range(LOOKS):
        with watchdog:
            found.append(watchdog.look())
    leave.set()
    other.join()
    assert found == [False] * (LOOKS - 1) + [True]


def test_a_call_that_fails_is_over(watchdog: Watchdog) -> None:
    with pytest.raises(ZeroDivisionError), watchdog:
        raise ZeroDivisionError
    assert not any(watchdog.look() for _ in range(2 * LOOKS))


SCRIPT = """
import os, sys, threading
from tandem_serving.adapter import watchdog
watchdog.LOOK_SECONDS = 0.01
if sys.argv[1] == "mute":
    os.close(2)
with watchdog.Watchdog():
    threading.Event().wait(600)
"""


@pytest.mark.parametrize(("mute", "said"), [("", "Triton has not taken a response"), ("mute", "")])
def test_the_process_ends_and_says_why_if_anybody_reads_it(mute: str, said: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(watchdogs.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, mute],
        env=environment,
        capture_output=True,
        text=True,
        timeout=99,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert watchdogs.LOOKS * watchdogs.LOOK_SECONDS >= 10, "nothing that is only slow"
