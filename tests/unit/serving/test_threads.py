"""A thread that breaks off, or does not end in time, ends the process; others do not."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tandem_serving import threads
from tandem_serving.boot import dead_models
from tandem_serving.errors import Survived
from tandem_serving.requests.delivery import Delivery

IMAGES = Path(__file__).resolve().parents[3] / "images/serving"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set where the process would end."""
    event = threading.Event()
    monkeypatch.setattr(threads, "end_process", event.set)
    return event


@pytest.mark.parametrize("fault", [ValueError("a fault"), SystemExit("a fault"), BaseException("a fault")], ids=repr)
def test_a_thread_that_breaks_off_ends_the_process(
    ended: threading.Event, caplog: pytest.LogCaptureFixture, fault: BaseException
) -> None:
    def work() -> None:
        raise fault

    threads.start("watch", work).join(60)
    assert ended.is_set()
    assert "the thread watch broke off" in caplog.text
    assert "a fault" in caplog.text


def test_a_thread_whose_work_is_done_ends_alone(ended: threading.Event) -> None:
    threads.start("watch", lambda: None).join(60)
    assert not ended.is_set()


def test_the_process_does_end() -> None:
    """With nothing of it replaced: other threads that wait for ever do not keep it."""
    code = "import threading; from tandem_serving import threads; threads.start('watch', lambda: 1 // 0)"
    program = f"{code}; threading.Event().wait(600)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(IMAGES)},
        capture_output=True,
        timeout=99,
        check=False,
    )
    assert done.returncode == 1
    assert b"the thread watch broke off" in done.stderr
    assert b"ZeroDivisionError" in done.stderr


def test_threads_that_end_in_time_end_alone(ended: threading.Event) -> None:
    with threads.ending(2.0):
        threads.start("watch", lambda: None).join()
    time.sleep(2.2)
    assert not ended.is_set()


def test_a_thread_that_does_not_end_in_time_ends_with_the_process(
    ended: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose call of another model Triton never answers."""
    stuck_thread = threads.start("clients", lambda: ended.wait(60))
    with threads.ending(0.2):
        stuck_thread.join(60)
    assert ended.is_set()
    assert "did not end within 0.2 s" in caplog.text


def test_a_delivery_that_breaks_off_ends_the_process(ended: threading.Event) -> None:
    """All responses go through it: every client would wait for ever."""

    def panic() -> None:
        raise SystemExit

    Delivery[None](batched=False).put("a sequence", panic)
    assert ended.wait(60)


def test_faults_that_are_survived_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    survived = Survived("the work failed", lambda: counted.append(1))
    for _ in range(3):
        with survived:
            raise ValueError("a fault")
    assert len(counted) == 3, "each, though one is logged"
    assert caplog.text.count("the work failed") == 1


# --- of the entry point -----------------------------------------------------------------------------
def test_dead_models_are_looked_for_after_a_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([set[int](), {7}, {7}])

    def look(server: int) -> set[int]:
        if found := next(looks):
            return found
        raise OSError("gone")

    monkeypatch.setattr(dead_models, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(dead_models, "dead_models", look)
    ended = threading.Event()
    dead_models.watch(1, threading.Event(), ended.set)
    assert ended.is_set()
    assert "it is not known whether a model is dead" in caplog.text


STOP = """
import os, signal, sys, threading
from tandem_serving.boot.supervise import Supervisor
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
server = Supervisor(os.environ, lambda: 1 // 0)
server.start(["sleep", "60"])
sys.exit(server.wait())
"""


def test_the_server_is_stopped_though_its_drain_breaks_off() -> None:
    """Else it goes on until the kubelet kills it, and cuts every stream that is left."""
    environment = {"PYTHONPATH": str(IMAGES), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", STOP], env=environment, capture_output=True, timeout=99, check=False)
    assert done.returncode == 128 + 15, done.stderr.decode()
    assert b"ZeroDivisionError" in done.stderr
