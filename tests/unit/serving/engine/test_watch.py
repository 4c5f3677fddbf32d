"""An EngineWatch on threads, with an engine of the test's own: what it sends, counts, reports, and when it ends."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from support.serving.bls import Sink
from tandem_serving import metrics as m
from tandem_serving.engine import failure as engine_failure
from tandem_serving.engine import metrics_page
from tandem_serving.engine import watch as engine_watch
from tandem_serving.engine.health import EngineHealth
from tandem_serving.engine.watch import AskAgainError, EngineWatch, WatchHooks
from tandem_serving.errors import EngineError, RequestError, ServingError

CUDA = "CUDA runtime error: an illegal memory access was encountered"
LONG = 60.0


@dataclass
class Site:
    """A watch and what became of it; `ask` is the engine's answer to a canary."""

    watch: EngineWatch
    metrics: m.Metrics
    ask: Callable[[], None] = lambda: None
    asked: int = 0
    at_once: int = 0
    most_at_once: int = 0
    failures: list[ServingError] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    sink: Sink = field(default_factory=Sink)

    def canary(self) -> None:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.ask()
        finally:
            self.at_once -= 1

    def call(self, error: Exception | None = None) -> None:
        with self.watch.call(1, "request") as answered:
            if error:
                raise error
            answered()

    def counted(self, call: str, role: str = "target") -> float:
        self.metrics.flush(self.sink)
        return self.sink.labelled.get((m.ENGINE_CALL_FAILURES.name, m.of_engine(role, call)), 0)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "engine-failure.json"
    monkeypatch.setenv(engine_failure.VARIABLE, str(path))
    return path


@pytest.fixture
def site(report: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    assert report
    monkeypatch.setattr("tandem_serving.engine.health.AGAIN", 0.02)
    monkeypatch.setattr("tandem_serving.engine.health.SILENCE", 1.0)
    monkeypatch.setattr(engine_watch, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(engine_watch, "SIGNS_SECONDS", 0.1)
    monkeypatch.setattr(engine_watch, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(engine_failure, "GRACE_SECONDS", 0.1)
    metrics = m.Metrics((m.ENGINE_CALL_FAILURES,))
    made = Site(EngineWatch("tensorrt_llm", metrics, EngineHealth(idle=0.05)), metrics)
    made.watch.begin(WatchHooks(made.canary, made.failures.append, end=made.ended.set))
    yield made
    made.watch.close()


def eventually(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def raising(error: Exception) -> Callable[[], None]:
    def ask() -> None:
        raise error

    return ask


def test_an_engine_that_fails_ends_the_process_and_is_reported(site: Site, report: Path) -> None:
    site.call()
    eventually(lambda: site.asked > 1, "the canary asks by itself")
    site.ask = raising(EngineError(f"target engine: {CUDA}\n  at step"))
    assert site.ended.wait(LONG)
    (error,) = site.failures
    assert error.code == "UNAVAILABLE"
    assert f"the engine fails, and starts again: target engine: {CUDA} at step; send the request to an" in str(error)
    assert json.loads(report.read_text()) == {
        "engineFailure": {
            "model": "tensorrt_llm",
            "reason": "EngineFailing",
            "message": f"target engine: {CUDA} at step",
        }
    }
    assert site.counted("canary") >= 4
    assert site.most_at_once == 1


def test_an_engine_that_hangs_ends_the_process_and_is_reported(site: Site, report: Path) -> None:
    site.call()
    eventually(lambda: site.asked > 1, "the canary works")
    hung = threading.Event()
    site.ask = lambda: assert_not(hung.wait(LONG))
    assert site.ended.wait(LONG)
    asked = site.asked
    assert "the engine hangs, and starts again: no call was answered" in str(site.failures[0])
    assert json.loads(report.read_text())["engineFailure"]["reason"] == "EngineHung"
    assert (site.most_at_once, site.asked) == (1, asked), "one at a time"
    hung.set()


def assert_not(waited: bool) -> None:
    assert waited


@pytest.mark.parametrize(
    "error", [RequestError("too long"), EngineError("stopped", "CANCELLED"), EngineError("no", "INVALID_ARG")]
)
def test_a_request_s_own_fault_is_not_the_engine_s(site: Site, error: ServingError) -> None:
    site.call()
    with pytest.raises(ServingError):
        site.call(error)
    assert site.counted("request") == 0
    site.ask = raising(error)
    asked = site.asked
    eventually(lambda: site.asked > asked + 8, "the canary goes on")
    assert not site.failures


@pytest.mark.parametrize("error", [AskAgainError(), ZeroDivisionError()], ids=["the server ends", "our own fault"])
def test_a_canary_that_cannot_be_sent_says_nothing(site: Site, error: Exception) -> None:
    site.call()
    eventually(lambda: site.asked > 1, "the canary works")
    site.ask = raising(error)
    asked = site.asked
    eventually(lambda: site.asked > asked + 8, "the canary goes on")
    assert not site.failures
    assert site.counted("canary") == 0


def test_failures_are_counted_by_engine(site: Site) -> None:
    site.call()
    with pytest.raises(EngineError):
        site.call(EngineError("it fails"))
    site.watch.draft_failed()
    assert (site.counted("request"), site.counted("request", "draft")) == (1, 1)
    assert not site.failures


def test_who_waits_for_a_lost_answer_is_told_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem_serving.engine.health.NEW", 0.5)
    told, kept = list[str](), list[str]()
    site.call()
    with (
        site.watch.call(1, "request", partial(told.append, "lost")),
        site.watch.call(1, "request", partial(kept.append, "lost")) as answered,
    ):

        def reached() -> bool:
            site.call()
            answered()
            return bool(told)

        eventually(reached, "told")
        looks = site.watch._health.lost  # it is lost at each further look, too
        eventually(lambda: reached() and looks(time.monotonic()), "looked at again")
        time.sleep(0.2)
    assert (told, kept) == (["lost"], [])
    assert site.counted("request") == 1


def test_the_engine_s_own_error_is_reported_not_what_clients_are_told(site: Site, report: Path) -> None:
    site.call()
    with pytest.raises(EngineError), site.watch.call(1, "request"):
        raise EngineError("the engine has stopped: its log says why") from RuntimeError(CUDA)
    site.watch.stopped("the engine has stopped")
    assert site.ended.wait(LONG)
    assert json.loads(report.read_text())["engineFailure"]["message"] == CUDA


def test_another_instance_of_the_model_ends_too(site: Site, report: Path) -> None:
    """One of them found it: the others' clients are told as well."""
    failure = {"model": "tensorrt_llm", "reason": "EngineFailing", "message": CUDA}
    report.write_text(json.dumps({"engineFailure": failure}))
    assert site.ended.wait(LONG)
    assert CUDA in str(site.failures[0])


def test_an_engine_at_work_for_others_is_not_hung(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that call it themselves fill it up: its iterations go on, and so may the canary's wait."""
    assert report
    monkeypatch.setattr("tandem_serving.engine.health.SILENCE", 2.0)
    monkeypatch.setattr(engine_watch, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(engine_watch, "SIGNS_SECONDS", 0.05)
    monkeypatch.setattr(engine_failure, "GRACE_SECONDS", 0.1)
    ended, at_work = threading.Event(), threading.Event()
    at_work.set()
    watch = EngineWatch("tensorrt_llm", m.Metrics(), EngineHealth(idle=0))
    signs = lambda: time.monotonic() if at_work.is_set() else 1.0  # noqa: E731
    watch.begin(WatchHooks(lambda: None, lambda error: None, signs, ended.set))
    with watch.call(1, "request") as answered:
        answered()
        assert not ended.wait(5), "more than twice as long"
        at_work.clear()
        assert ended.wait(LONG)
    watch.close()


PAGE = """# TYPE nv_trt_llm_general_metrics gauge
nv_trt_llm_general_metrics{general_type="timestamp",model="tensorrt_llm",version="1"} 1700074049
nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm_draft",version="1"} 4
nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm",version="1"} 17
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 3
"""


@pytest.mark.parametrize("prefix", ["nv_trt_llm", "tandem_engine"])
@pytest.mark.parametrize(
    ("model", "count"), [("tensorrt_llm", "17"), ("tensorrt_llm_draft", "4"), ("tensorrt_llm_engine", None)]
)
def test_iterations_on_the_page(model: str, count: str | None, prefix: str) -> None:
    assert metrics_page.find_iterations(PAGE.replace("nv_trt_llm", prefix), model) == count


def test_without_a_page_there_are_no_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics_page.PORT, raising=False)
    assert metrics_page.iterations("tensorrt_llm") is None
    monkeypatch.setenv(metrics_page.PORT, "1")
    assert metrics_page.iterations("tensorrt_llm") is None
