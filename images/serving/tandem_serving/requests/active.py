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

log = logging.getLogger("tandem.jobs")


class Chunk(Protocol):
    """A part of the answer to one prompt of a request."""

    @property
    def finish_reason(self) -> str:
        """Why the prompt's answer is over; empty: it goes on."""
        ...


LINGER_SECONDS = 1.0

P = TypeVar("P", bound=Chunk)
SentP = TypeVar("SentP", bound=Chunk, contravariant=True)


class ChunkPacker(Protocol[SentP]):
    """Sends pieces of many requests by way of one of them."""

    def carry(self, wave: Sequence[tuple[Any, SentP, bool]]) -> None:
        """Of each piece the responder that it goes to, and whether it is the last."""
        ...


class Responder(Protocol[SentP]):
    """A request's way back to its client. One thread at a time calls it."""

    def send(self, piece: SentP, last: bool) -> None:
        """Send a piece; the `last` ends the request."""
        ...

    def carrier(self, piece: SentP) -> ChunkPacker[SentP] | None:
        """What sends a piece with those of other requests, and theirs as well; None: it goes by itself."""
        ...

    def close(self) -> None:
        """End the request, whose last piece was sent."""
        ...

    def fail(self, error: ServingError) -> None:
        """Send an error, which ends the request."""
        ...

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        ...


@dataclass(eq=False)
class ActiveRequest(Generic[P]):
    """A request of `prompts` prompts while it runs. Sending stops at its end. `begun`: one of them got a place."""

    prompts: int
    request_id: str
    responder: Responder[P]
    deadline: float
    arrived: float = field(default_factory=time.monotonic)
    over: bool = False
    begun: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finished: int = 0

    def send(self, piece: P) -> None:
        """Send a piece, unless the request is over. The last one of its last prompt ends it."""
        with self._lock:
            last = self._counted(piece)
            if last is None:
                return
            self.responder.send(piece, last)
            self.over = last  # not before: of a response that cannot be made or sent, `fail` still tells the client

    def admit(self, piece: P) -> bool | None:
        """Count a piece that is about to be sent with others': whether it is the last, or None, which is not sent."""
        with self._lock:
            return self._counted(piece)

    def carry(self, piece: P, wave: Sequence[tuple[Responder[P], P, bool]]) -> bool:
        """Send its piece and those of others by way of this request, unless it is over; whether they were sent."""
        with self._lock:
            carrier = None if self.over else self.responder.carrier(piece)
            if carrier is not None:
                carrier.carry(wave)
            return carrier is not None

    def close(self) -> None:
        """End the request, whose last piece was sent with others', unless it is over."""
        with self._lock:
            if not self.over:
                self.responder.close()
                self.over = True

    def _counted(self, piece: P) -> bool | None:
        if self.over:
            return None
        self._finished += bool(piece.finish_reason)
        last = self._finished == self.prompts
        if last and self.responder.cancelled():
            return None  # it lingers, see above
        return last

    def fail(self, error: ServingError) -> None:
        """End the request with an error, unless it is over."""
        with self._lock:
            if not self.over:
                self.over = True
                _tell(self.responder, error)

    def abandoned(self) -> bool:
        """Whether the client is gone, which nobody knew: the request is over now, but for its last response.

        Triton is never asked once a request is over: it has freed it then.
        """
        with self._lock:
            if self.over or not self.responder.cancelled():
                return False
            self.over = True
            return True


class AddressedChunk(NamedTuple, Generic[P]):
    """A piece and the request that it is for."""

    job: ActiveRequest[P]
    piece: P


def send(parcels: Iterable[AddressedChunk[P]], count: Callable[[], object] = lambda: None) -> None:
    """Send pieces to their requests' clients, in order; those that pack, together.

    Of one request by one thread at a time. What cannot be sent is those requests' error; `count` is called then.
    """
    wave: list[AddressedChunk[P]] = []
    for parcel in parcels:
        packs = False
        with _failing([parcel.job], count):
            packs = parcel.job.responder.carrier(parcel.piece) is not None
        if packs:
            wave.append(parcel)
        else:
            _send_wave(wave, count)  # an earlier piece of the same request may be in it
            wave = []
            with _failing([parcel.job], count):
                parcel.job.send(parcel.piece)
    _send_wave(wave, count)


def _send_wave(parcels: Sequence[AddressedChunk[P]], count: Callable[[], object]) -> None:
    admitted: list[tuple[ActiveRequest[P], P, bool]] = []
    for job, piece in parcels:
        with _failing([job], count):
            if (last := job.admit(piece)) is not None:
                admitted.append((job, piece, last))
    wave = [(job.responder, piece, last) for job, piece, last in admitted]
    with _failing([job for job, _, _ in admitted], count):
        any(job.carry(piece, wave) for job, piece, _ in admitted)  # the first one that is still open
    for job, _, last in admitted:
        if last:
            with _failing([job], count):
                job.close()


@contextmanager
def _failing(jobs: Sequence[ActiveRequest[P]], count: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except Exception:  # of tensors or Triton's sender, whatever it is: others are sent theirs
        log.exception("a response could not be sent")
        count()
        for job in jobs:
            job.fail(EngineError(FAILED))


def _tell(responder: Responder[P], error: ServingError) -> None:
    """Send the error. One client that cannot be told must not end the watch over all others."""
    try:
        responder.fail(error)
    except Exception:  # of Triton's sender, whatever it is: deadlines and cancellations of others go on
        log.exception("a client could not be told that its request is over: %s", error)


class ActiveRequests(Generic[P]):
    """The requests of a model that are not over. Thread-safe."""

    def __init__(self, timeout: float, count: Callable[[], object] = lambda: None) -> None:
        """`timeout` in seconds, for each request as a whole. `count`: called where a client cannot be asked about."""
        self._timeout = timeout
        self._jobs: dict[int, ActiveRequest[P]] = {}
        self._abandoned: deque[tuple[float, ActiveRequest[P]]] = deque()
        self._unasked = Survived("it is not known whether a client is gone", count)

    def make(self, prompts: int, request_id: str, responder: Responder[P]) -> ActiveRequest[P]:
        """A request's job, which nobody watches yet."""
        return ActiveRequest(prompts, request_id, responder, time.monotonic() + self._timeout)

    def add(self, job: ActiveRequest[P]) -> None:
        """Watch over a job."""
        self._jobs[id(job)] = job

    def cancel(self, request_id: str) -> None:
        """End all requests with this id: the client asked for it."""
        for job in list(self._jobs.values()):
            if request_id and job.request_id == request_id:
                job.fail(CancelledError("the request was stopped"))

    def fail_all(self, error: ServingError) -> None:
        """End all requests."""
        for job in list(self._jobs.values()):
            job.fail(error)

    def watch(self, now: float) -> bool:
        """End requests whose time is over or whose client is gone; whether there were any. Forget what is over."""
        ended = [self._watch_job(job, now) for job in list(self._jobs.values())]
        while self._abandoned and now - self._abandoned[0][0] >= LINGER_SECONDS:
            _tell(self._abandoned.popleft()[1].responder, CancelledError("the client cancelled the request"))
        return any(ended)

    def _watch_job(self, job: ActiveRequest[P], now: float) -> bool:
        if job.over:
            self._jobs.pop(id(job), None)
            return False
        if now > job.deadline:
            job.fail(RequestTimeoutError(f"the request took longer than {self._timeout:g} s and was ended"))
        else:
            with self._unasked:
                if job.abandoned():
                    self._abandoned.append((now, job))
        return job.over
