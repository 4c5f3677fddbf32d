"""Calls of one model by another, inside the server: none is made any more once the server ends.

Triton's Python backend ends the threads that run a model's calls before it informs the model (python_be.cc,
`ModelInstanceState::~ModelInstanceState`: `thread_pool_->wait()`, then `TerminateStub`; 24.10, and 26.07 reads the
same). A call that comes in between is queued, never run, and freed after the shared memory that it lies in: the
server ends by signal 11. For a second before that, at least, it refuses all calls.
"""

from __future__ import annotations

import threading
from typing import Any

from tandem_serving.errors import EngineError

REFUSAL = "Server not ready"
"""How Triton refuses a call before it is ready and from the moment on that it ends."""


class ServerEndsError(EngineError):
    """The server ends, and takes no calls any more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down: send the request again", "UNAVAILABLE")


class ServerState:
    """What this process's calls have shown of the server. Thread-safe."""

    def __init__(self) -> None:
        self._taken = False
        self._ends = threading.Event()

    def check(self) -> None:
        """Raises ServerEndsError where it is known to end."""
        if self._ends.is_set():
            raise ServerEndsError

    def answered(self, error: str = "") -> None:
        """It answered a call, with this error. Raises ServerEndsError where that says that it ends."""
        if REFUSAL not in error:
            self._taken = True
        elif self._taken:  # else it may not be ready yet
            self._ends.set()
            self.check()


SERVER = ServerState()


def execute(call: Any, **how: Any) -> Any:
    """Execute a pb_utils.InferenceRequest; `learn` of its responses. Raises ServerEndsError, and what that raises."""
    SERVER.check()
    try:
        return call.exec(**how)
    except Exception as error:  # of any class: it goes on to the caller, and is only read here
        SERVER.answered(str(error))
        raise


def learn(response: Any) -> None:
    """Learn of the server from a call's response. Raises ServerEndsError where it says that it ends."""
    SERVER.answered(response.error().message() if response.has_error() else "")
