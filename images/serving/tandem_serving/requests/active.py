"""Requests while they run: how each ends, whoever brings it about; their deadlines, clients that are gone.

The last response of a request whose client is gone waits for `LINGER_SECONDS`. Triton's gRPC frontend (24.10; 26.08
reads the same) frees a cancelled stream's state when the last response comes while an earlier one is still being
written, and once more when that write ends. The state is by then another stream's, and the server dies: "API misuse
of type GRPC_CALL_ERROR_TOO_MANY_OPERATIONS".
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from tandem_serving.errors import FAILED, CancelledError, EngineError, RequestTimeoutError, ServingError, Survived

log = logging.getLogger("tandem.requests")


class ResponseChunk(Protocol):
    """A part of the answer to one prompt of a request."""

    @property
    def finish_reason(self) -> str:
        """Why the prompt's answer is over; empty: it goes on."""
        ...


LINGER_SECONDS = 1.0
# A question whether a client is gone costs some 30 us, in the server too. Requests are asked about at each look, but
# of those that came after so many, which mostly wait to run, a tenth in turn.
ALWAYS_ASKED = 128
TURNS = 10
_UNASKED = Survived("it is not known whether a client is gone")

P = TypeVar("P", bound=ResponseChunk)
SentP = TypeVar("SentP", bound=ResponseChunk, contravariant=True)


class Responder(Protocol[SentP]):
    """A request's way back to its client. One thread at a time calls it."""

    def send(self, chunk: SentP, last: bool) -> None:
        """Send a chunk; the `last` ends the request."""
        ...

    def fail(self, error: ServingError) -> None:
        """Send an error, which ends the request."""
        ...

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        ...


@dataclass(eq=False)
class ActiveRequest(Generic[P]):
    """A request of `prompts` prompts while it runs. Sending stops at its end. `begun`: one of them runs, or did."""

    prompts: int
    request_id: str
    responder: Responder[P]
    deadline: float
    arrived: float = field(default_factory=time.monotonic)
    over: bool = False
    begun: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finished: int = 0
    _answered: bool = False
    _lingers: bool = False
    _lingers_until: float = 0.0

    def send(self, chunk: P) -> None:
        """Send a chunk, unless the request is over. The last one of its last prompt ends it."""
        with self._lock:
            if self.over:
                return
            self._finished += bool(chunk.finish_reason)
            last = self._finished == self.prompts
            if last and self._left():
                return
            self.responder.send(chunk, last)
            self._answered = True
            self.over = last  # not before: of a response that cannot be made or sent, `fail` still informs the client

    def fail(self, error: ServingError) -> None:
        """End the request with an error, unless it is over."""
        with self._lock:
            if self.over:
                return
            with _UNASKED:
                if self._answered and self._left():
                    return
            self.over = True
            _send_error(self.responder, error)

    def abandoned(self) -> bool:
        """Whether the client is gone, which was not known: the request is over now, but for its last response.

        It is not known while a response is being sent, which may take as long as Triton likes.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return not self.over and self._left()
        finally:
            self._lock.release()

    def settle(self, now: float) -> bool:
        """Of a request that is over: whether its last response is sent. One that lingers is sent when that is due."""
        if not self._lingers:
            return True
        self._lingers_until = self._lingers_until or now + LINGER_SECONDS
        if now < self._lingers_until:
            return False
        _send_error(self.responder, CancelledError("the client cancelled the request"))
        return True

    def _left(self) -> bool:
        """Whether the client is gone: the request is over then, and its last response lingers.

        Triton is never asked once a request is over: it has freed it then.
        """
        self._lingers = self.responder.cancelled()
        self.over = self._lingers  # after that: `settle` is without the lock
        return self.over


class AddressedChunk(NamedTuple, Generic[P]):
    """A chunk and the request that it is for."""

    request: ActiveRequest[P]
    chunk: P


def send(addressed: AddressedChunk[P], count: Callable[[], object] = lambda: None) -> None:
    """Send a chunk to its request's client. Where that fails, the request ends with an error; `count` is called."""
    request, chunk = addressed
    try:
        request.send(chunk)
    except Exception:  # of tensors or Triton's sender, whatever it is: others are sent theirs
        log.exception("a response could not be sent")
        count()
        request.fail(EngineError(FAILED))


def _send_error(responder: Responder[P], error: ServingError) -> None:
    """Send the error. One client that cannot get it must not end the watch over all others."""
    try:
        responder.fail(error)
    except Exception:  # of Triton's sender, whatever it is: deadlines and cancellations of others go on
        log.exception("a client could not be sent the end of its request: %s", error)


class ActiveRequests(Generic[P]):
    """The requests of a model that are not over. Thread-safe."""

    def __init__(self, timeout: float, count: Callable[[], object] = lambda: None) -> None:
        """`timeout` in seconds, for each request as a whole. `count`: called where a client cannot be asked about."""
        self._timeout = timeout
        self._requests: dict[int, ActiveRequest[P]] = {}
        self._looks = itertools.count()
        self._unasked = Survived("it is not known whether a client is gone", count)

    def make(self, prompts: int, request_id: str, responder: Responder[P]) -> ActiveRequest[P]:
        """An active request, which is not watched yet."""
        return ActiveRequest(prompts, request_id, responder, time.monotonic() + self._timeout)

    def add(self, request: ActiveRequest[P]) -> None:
        """Watch over a request."""
        self._requests[id(request)] = request

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        for request in list(self._requests.values()):
            if request_id and request.request_id == request_id:
                request.fail(CancelledError("the request was stopped"))

    def fail_all(self, error: ServingError) -> None:
        """End all requests."""
        for request in list(self._requests.values()):
            request.fail(error)

    def watch(self, now: float) -> bool:
        """End requests whose time is over or whose client is gone; whether there were any. Forget what is over."""
        look = next(self._looks)
        ended = [
            self._watch_request(request, now, place < ALWAYS_ASKED or (place + look) % TURNS == 0)
            for place, request in enumerate(list(self._requests.values()))
        ]
        return any(ended)

    def _watch_request(self, request: ActiveRequest[P], now: float, ask: bool) -> bool:
        if request.over:
            if request.settle(now):
                self._requests.pop(id(request), None)
            return False
        if now > request.deadline:
            request.fail(RequestTimeoutError(f"the request took longer than {self._timeout:g} s and was ended"))
        elif ask:
            with self._unasked:
                request.abandoned()
        return request.over
