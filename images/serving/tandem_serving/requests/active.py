"""Requests while they run: how each ends, whoever brings it about; their deadlines, clients that are gone.

The last response of a request whose client is gone waits for `LINGER_SECONDS`. Triton's gRPC frontend (24.10; 26.08
reads the same) frees a cancelled stream's state when the last response comes while an earlier one is still being
written, and once more when that write ends. The state is by then another stream's, and the server dies: "API misuse
of type GRPC_CALL_ERROR_TOO_MANY_OPERATIONS".
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tandem_serving.errors import FAILED, CancelledError, EngineError, RequestTimeoutError, ServingError, Survived

log = logging.getLogger("tandem.requests")


class ResponseChunk(Protocol):
    """A part of the answer to one prompt of a request."""

    @property
    def finish_reason(self) -> str:
        """Why the prompt's answer is over; empty: it goes on."""
        ...


LINGER_SECONDS = 1.0

P = TypeVar("P", bound=ResponseChunk)
SentP = TypeVar("SentP", bound=ResponseChunk, contravariant=True)


class UnpackedError(Exception):
    """Chunks cannot be packed: one of them is malformed, and nothing was sent."""


class BatchSender(Protocol[SentP]):
    """Sends chunks of many requests by way of one of them."""

    def send_batch(self, batch: Sequence[tuple[Any, SentP, bool]]) -> None:
        """Of each chunk the responder that it goes to, and whether it is the last. Raises UnpackedError."""
        ...


class Responder(Protocol[SentP]):
    """A request's way back to its client. One thread at a time calls it."""

    def send(self, chunk: SentP, last: bool) -> None:
        """Send a chunk; the `last` ends the request."""
        ...

    def batch_sender(self, chunk: SentP) -> BatchSender[SentP] | None:
        """What sends a chunk with those of other requests, and theirs as well; None: it goes by itself."""
        ...

    def close(self) -> None:
        """End the request, whose last chunk was sent."""
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

    def send(self, chunk: P) -> None:
        """Send a chunk, unless the request is over. The last one of its last prompt ends it."""
        with self._lock:
            last = self._counted(chunk)
            if last is None:
                return
            self.responder.send(chunk, last)
            self.over = last  # not before: of a response that cannot be made or sent, `fail` still informs the client

    def admit(self, chunk: P) -> bool | None:
        """Count a chunk that is about to be sent with others': whether it is the last, or None, which is not sent."""
        with self._lock:
            return self._counted(chunk)

    def send_batch(self, chunk: P, batch: Sequence[tuple[Responder[P], P, bool]]) -> bool:
        """Send its chunk and those of others by way of this request, unless it is over; whether they were sent."""
        with self._lock:
            batch_sender = None if self.over else self.responder.batch_sender(chunk)
            if batch_sender is not None:
                batch_sender.send_batch(batch)
            return batch_sender is not None

    def close(self) -> None:
        """End the request, whose last chunk was sent with others', unless it is over."""
        with self._lock:
            if not self.over:
                self.responder.close()
                self.over = True

    def _counted(self, chunk: P) -> bool | None:
        if self.over:
            return None
        self._finished += bool(chunk.finish_reason)
        last = self._finished == self.prompts
        if last and self.responder.cancelled():
            return None  # it lingers, see above
        return last

    def fail(self, error: ServingError) -> None:
        """End the request with an error, unless it is over."""
        with self._lock:
            if not self.over:
                self.over = True
                _send_error(self.responder, error)

    def abandoned(self) -> bool:
        """Whether the client is gone, which was not known: the request is over now, but for its last response.

        Triton is never asked once a request is over: it has freed it then.
        """
        with self._lock:
            if self.over or not self.responder.cancelled():
                return False
            self.over = True
            return True


class AddressedChunk(NamedTuple, Generic[P]):
    """A chunk and the request that it is for."""

    request: ActiveRequest[P]
    chunk: P


def send(addressed_chunks: Iterable[AddressedChunk[P]], count: Callable[[], object] = lambda: None) -> None:
    """Send chunks to their requests' clients, in order; those that pack, together.

    Of one request by one thread at a time. What cannot be sent is those requests' error; `count` is called then.
    """
    batch: list[AddressedChunk[P]] = []
    for addressed in addressed_chunks:
        packs = False
        with _failing([addressed.request], count):
            packs = addressed.request.responder.batch_sender(addressed.chunk) is not None
        if packs:
            batch.append(addressed)
        else:
            _send_batch(batch, count)  # an earlier chunk of the same request may be in it
            batch = []
            with _failing([addressed.request], count):
                addressed.request.send(addressed.chunk)
    _send_batch(batch, count)


def _send_batch(addressed_chunks: Sequence[AddressedChunk[P]], count: Callable[[], object]) -> None:
    counted: list[tuple[ActiveRequest[P], P, bool]] = []
    for request, chunk in addressed_chunks:
        with _failing([request], count):
            if (last := request.admit(chunk)) is not None:
                counted.append((request, chunk, last))
    batch = [(request.responder, chunk, last) for request, chunk, last in counted]
    try:
        with _failing([request for request, _, _ in counted], count, but=UnpackedError):
            any(request.send_batch(chunk, batch) for request, chunk, _ in counted)  # the first one that is still open
    except UnpackedError:
        for (request, chunk, _), each in zip(counted, batch, strict=True):
            with _failing([request], count):
                request.send_batch(chunk, [each])
    for request, _, last in counted:
        if last:
            with _failing([request], count):
                request.close()


@contextmanager
def _failing(
    requests: Sequence[ActiveRequest[P]], count: Callable[[], object], but: type[Exception] | tuple[()] = ()
) -> Iterator[None]:
    """What breaks off in here is these requests' error, `but` for what goes on to the caller."""
    try:
        yield
    except but:
        raise
    except Exception:  # of tensors or Triton's sender, whatever it is: others are sent theirs
        log.exception("a response could not be sent")
        count()
        for request in requests:
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
        self._abandoned: deque[tuple[float, ActiveRequest[P]]] = deque()
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
        ended = [self._watch_request(request, now) for request in list(self._requests.values())]
        while self._abandoned and now - self._abandoned[0][0] >= LINGER_SECONDS:
            _send_error(self._abandoned.popleft()[1].responder, CancelledError("the client cancelled the request"))
        return any(ended)

    def _watch_request(self, request: ActiveRequest[P], now: float) -> bool:
        if request.over:
            self._requests.pop(id(request), None)
            return False
        if now > request.deadline:
            request.fail(RequestTimeoutError(f"the request took longer than {self._timeout:g} s and was ended"))
        else:
            with self._unasked:
                if request.abandoned():
                    self._abandoned.append((now, request))
        return request.over
