"""The errors of a request. Each message goes to the client as it stands: it says what to do next."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

log = logging.getLogger("tandem.errors")

# Where a trace begins behind an engine's message: Python's, and TensorRT-LLM's (TllmException::getTrace).
_TRACE = re.compile(r"\n\nAt:|\n1 +0x")
# What a client hears of a fault of ours.
FAILED = "the server failed at this request; its log says why"
QUIET_SECONDS = 60.0


class ServingError(Exception):
    """Base of all errors that end a request.

    `code` names a code of Triton's TritonError (INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED).
    """

    code = "INTERNAL"


class RequestError(ServingError):
    """The request itself is wrong; sending it again cannot help."""

    code = "INVALID_ARG"


class QueueFullError(ServingError):
    """No room for what is `wanted`; the same request may be sent again later. `taken` places, of the `limit`."""

    code = "UNAVAILABLE"

    def __init__(self, taken: int, limit: int, wanted: int) -> None:
        super().__init__(
            f"{taken} of {limit} places to run or wait in are taken: no room for {wanted} more; send the request"
            " again later or to another replica"
        )


class QueueTimeoutError(ServingError):
    """It waited for a place for too long; the same request may be sent again, better to another replica."""

    code = "UNAVAILABLE"

    def __init__(self, waited: float, limit: float) -> None:
        super().__init__(
            f"all places were taken for {waited:.1f} s and requests wait {limit:g} s at most (queueTimeoutSeconds): "
            "send the request again to another replica or later"
        )


class EngineError(ServingError):
    """An engine (target or draft) refused or failed a call; `code` is the engine's own."""

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        super().__init__(message)
        self.code = code


class RequestTimeoutError(ServingError):
    """The request's time is over."""

    code = "UNAVAILABLE"


class CancelledError(ServingError):
    """The client is gone, or asked for the request's end."""

    code = "CANCELLED"


def without_trace(message: str) -> str:
    """An engine's message without the calls that led to it."""
    return _TRACE.split(message)[0].strip()


@contextmanager
def faults_as_errors(what: str) -> Iterator[None]:
    """Raise a fault of ours as an EngineError and log its trace: Triton would send it to the client."""
    try:
        yield
    except ServingError:
        raise
    except Exception:  # whatever it is, it ends one request: others of this call of Triton's begin
        log.exception(what)
        raise EngineError(FAILED) from None


COUNTED = "counted_as_tandem_fault"
"""Attribute of an exception whose fault was counted where it broke off: not once more by `Survived`."""


class Survived:
    """A context that lets no exception out: for work on which all requests depend, done again and again.

    Faults are logged with their trace, those of `QUIET_SECONDS` after one are not; `count` is called at each.
    """

    def __init__(self, what: str, count: Callable[[], object] = lambda: None) -> None:
        self._what = what
        self._count = count
        self._logged = -math.inf

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Log an exception, unless one was logged lately."""
        if not isinstance(error, Exception):
            return False
        if not getattr(error, COUNTED, False):
            self._count()
        if time.monotonic() - self._logged >= QUIET_SECONDS:
            self._logged = time.monotonic()
            log.error(self._what, exc_info=error)
        return True
