"""Watches an engine from inside the model that calls it, and ends that model's process when the engine has failed.

The model reports its calls by `call`; the judgement is `engine_health`'s. A thread looks, another asks the canary.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tandem_serving import metrics as m
from tandem_serving.engine import failure
from tandem_serving.engine.health import CANARY, EngineHealth, EngineVerdict
from tandem_serving.errors import EngineError, ServingError, Survived
from tandem_serving.threads import end_process
from tandem_serving.threads import start as start_thread

log = logging.getLogger("tandem.engine")

LOOK_SECONDS = 0.1
SIGNS_SECONDS = 1.0
CLOSE_SECONDS = 5.0
REQUESTS_OWN = ("INVALID_ARG", "UNSUPPORTED", "CANCELLED")
"""Codes of errors that are not the engine's fault: the request is wrong, or was stopped."""


@dataclass(frozen=True)
class WatchHooks:
    """What an EngineWatch works with. `ask` makes one call of one token, raises ServingError, and AskAgainError where
    its failure shows nothing. `fail` ends all requests with an error and refuses later ones. `signs`: something that
    changes as long as the engine works, for whomever; None: there is none."""

    ask: Callable[[], None]
    fail: Callable[[ServingError], None]
    signs: Callable[[], Hashable] = lambda: None
    end: Callable[[], None] = end_process


class AskAgainError(Exception):
    """The canary could not be sent, for a reason that is not the engine's."""


class EngineWatch:
    """Thread-safe. `model`: the engine's name in reports. Nothing is judged before `begin`."""

    def __init__(self, model: str, metrics: m.Metrics, health: EngineHealth | None = None) -> None:
        self._model = model
        self._metrics = metrics
        self._health = health or EngineHealth()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._on_lost: dict[Hashable, Callable[[], None]] = {}
        self._due = threading.Semaphore(0)
        self._signs: Hashable = None
        self._signs_at = 0.0
        self._logged = ""

    @contextmanager
    def call(
        self, work: float, kind: Hashable, on_lost: Callable[[], None] | None = None
    ) -> Iterator[Callable[[], None]]:
        """Around an engine call; what is yielded is to be called at each answer. See EngineHealth.started. `on_lost`:
        called on another thread, once, where its answer is lost."""
        key = object()
        with self._lock:
            self._health.started(key, work, kind, time.monotonic())
            if on_lost:
                self._on_lost[key] = on_lost
        try:
            yield lambda: self._answered(key)
        except ServingError as error:
            if error.code not in REQUESTS_OWN:
                self._failed(error, key, "request")
            raise
        finally:
            with self._lock:
                self._health.ended(key)
                self._on_lost.pop(key, None)

    def draft_failed(self) -> None:
        """A call of the draft engine failed. The target alone goes on: that is counted, and not judged."""
        self._metrics.add(m.ENGINE_CALL_FAILURES, 1, m.of_engine("draft"))

    def worked(self) -> None:
        """The engine answered a call that is not one of its own."""
        self._answered(None)

    def stopped(self, message: str) -> None:
        """The engine itself says that it has stopped."""
        with self._lock:
            self._health.stopped(message)

    def begin(self, means: WatchHooks) -> None:
        """Judge from now on."""
        for name, work in (("engine-watch", self._watch), ("canary", self._ask)):
            self._threads.append(start_thread(name, partial(work, means)))

    def close(self, interrupt: Callable[[], object] = lambda: None) -> None:
        """End the threads; `interrupt` ends a canary that is under way, where that can be: one that cannot be ended
        is not waited for for long."""
        self._closed.set()
        self._due.release()
        interrupt()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS)

    def _failed(self, error: BaseException, key: Hashable, what: str) -> None:
        self._metrics.add(m.ENGINE_CALL_FAILURES, 1, m.of_engine("target", what))
        with self._lock:
            self._health.failed(key, str(error.__cause__ or error), time.monotonic())

    def _answered(self, key: Hashable) -> None:
        with self._lock:
            self._health.answered(key, time.monotonic())

    # --- on the watching thread -------------------------------------------------------------------
    def _watch(self, means: WatchHooks) -> None:
        looking = Survived("looking after the engine failed", self._metrics.fault)
        verdict: EngineVerdict | None = None
        while verdict is None and not self._closed.wait(LOOK_SECONDS):
            with looking:
                self._look_for_signs(means)
                verdict = self._look()
        if verdict is not None and not self._closed.is_set():
            self._finish(verdict, means)

    def _look(self) -> EngineVerdict | None:
        now = time.monotonic()
        with self._lock:
            verdict = self._health.look(now)
            if self._health.canary_due(now):
                self._health.started(CANARY, 1.0, CANARY, now)
                self._due.release()
            lost = [call for key in self._health.lost(now) if (call := self._on_lost.pop(key, None))]
        for call in lost:
            self._metrics.add(m.ENGINE_CALL_FAILURES, 1, m.of_engine("target", "request"))
            call()
        return verdict or failure.published()

    def _look_for_signs(self, means: WatchHooks) -> None:
        """Others may keep the engine at work, whose calls are not reported here."""
        now = time.monotonic()
        if not self._health.suspicious or now - self._signs_at < SIGNS_SECONDS:
            return
        fresh, before = now - self._signs_at < 2 * SIGNS_SECONDS, self._signs
        self._signs, self._signs_at = means.signs(), time.monotonic()
        if fresh and self._signs != before:
            with self._lock:
                self._health.sign_of_life(time.monotonic())

    def _finish(self, verdict: EngineVerdict, means: WatchHooks) -> None:
        log.error("%s: %s: %s; ending this process", self._model, verdict.reason, verdict.message)
        end = threading.Timer(1.5 * failure.GRACE_SECONDS, means.end)  # if the entry point does not, before
        end.daemon = True
        end.start()
        with Survived("the engine's failure cannot be reported"):
            failure.publish(self._model, verdict)
        means.fail(EngineError(refusal(verdict), "UNAVAILABLE"))

    # --- on the canary's thread -------------------------------------------------------------------
    def _ask(self, means: WatchHooks) -> None:
        while True:
            self._due.acquire()
            if self._closed.is_set():
                return
            self._ask_once(means)

    def _ask_once(self, means: WatchHooks) -> None:
        try:
            means.ask()
        except AskAgainError:
            pass
        except ServingError as error:
            self._canary_failed(error)
        except Exception:  # of ours, not of the engine: it says nothing, and must not end this thread
            log.exception("the canary could not be sent")
        else:
            self._answered(CANARY)
        with self._lock:
            self._health.ended(CANARY)

    def _canary_failed(self, error: ServingError) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s: a call of one token failed: %s", self._model, error)
        if error.code not in REQUESTS_OWN:
            self._failed(error, CANARY, "canary")


def refusal(verdict: EngineVerdict) -> str:
    """The error that clients get."""
    what = "the engine fails" if verdict.reason == "EngineFailing" else "the engine hangs"
    return f"{what}, and starts again: {verdict.message}; send the request to another replica"
