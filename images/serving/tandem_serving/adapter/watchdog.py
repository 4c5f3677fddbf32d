"""A model whose calls into Triton no longer return is ended, so that its container starts again.

Triton's gRPC server can lock itself up for ever: where a stream's client leaves while a response of that stream is
being written, one thread holds the stream's state and waits for its context, another holds the context and waits for
the state (`ModelStreamInferHandler::Process` and `StreamInferResponseComplete` in src/grpc/stream_infer_handler.cc of
triton-inference-server/server, up to 26.08 at least). No gRPC stream gets anything from then on, the sending of that
response never returns, and Triton calls itself live and ready all the while.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from tandem_serving.threads import end_process

LOOK_SECONDS = 1.0
LOOKS = 30
"""In a row that find one and the same call. Looks are counted, not seconds: a machine that slept is not stuck. They
last far longer than a response waits where Triton has too few threads (docs/design/bls.md) and engine calls
hold them."""

MESSAGE = (
    f"Triton has not taken a response for {LOOKS * LOOK_SECONDS:.0f} s: its gRPC server is locked up, or engine calls"
    " that do not return hold all threads of its pool (see docs/design/bls.md); ending this model, so that the"
    " server starts again"
)


class Watchdog:
    """Use as a context manager around calls that should take far less than `LOOKS` looks. Thread-safe, not nested.

    `end` is called once, from a thread of the watchdog's own, when one never returns.
    """

    def __init__(self, end: Callable[[], None] = end_process) -> None:
        self._end = end
        self._calls: dict[int, object] = {}
        self._seen: dict[int, tuple[object, int]] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._calls[threading.get_ident()] = object()
        if self._thread is None:
            self._start()

    def __exit__(self, *_: object) -> None:
        del self._calls[threading.get_ident()]

    def look(self) -> bool:
        """Whether a call is under way that was so at each of the last `LOOKS` looks."""
        calls = dict(self._calls)
        before, self._seen = self._seen, {}
        for thread, call in calls.items():
            known, looks = before.get(thread, (call, 0))
            self._seen[thread] = call, looks + 1 if known is call else 1
        return any(looks >= LOOKS for _, looks in self._seen.values())

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="stuck", daemon=True)
                thread.start()
                self._thread = thread

    def _watch(self) -> None:
        pause = threading.Event()
        while not self.look():
            pause.wait(LOOK_SECONDS)
        # Not by logging, whose records may go through Triton.
        with contextlib.suppress(
            OSError, AttributeError
        ):  # stderr has no reader any longer: it must end all the same
            os.write(sys.stderr.fileno(), f"{MESSAGE}\n".encode())
        self._end()
