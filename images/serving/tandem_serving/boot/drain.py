"""A server that gets SIGTERM first finishes the requests that it has.

Triton waits at SIGTERM for HTTP requests, but refuses the next engine call of a gRPC stream, which ends it: so
SIGTERM reaches Triton when no request is left. The pod has left the Service's endpoints by then; only clients that
keep their connections can still come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from http.client import HTTPException

from tandem_serving.engine.metrics_page import page

TIMEOUT_SECONDS = 5.0
GAUGES = ("tandem_requests_running", "tandem_requests_waiting")
POLL_SECONDS = 1.25
"""Twice the half second and more by which the gauges lag: what two looks in a row do not see is not there."""


def requests_left(port: int) -> float:
    """Requests in the server on whose metrics port this is; 0 when it does not say, infinite when it is too busy."""
    try:
        lines = page(port, TIMEOUT_SECONDS).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(GAUGES))
    except TimeoutError:  # it took the connection: its processors are at work for requests
        return math.inf
    except (OSError, ValueError, HTTPException):
        return 0


def wait_idle(
    left: Callable[[], float],
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Return when two looks in a row find no request, or after `seconds`; whether none is left."""
    deadline, seen = clock() + seconds, left()
    while clock() < deadline:
        sleep(POLL_SECONDS)
        before, seen = seen, left()
        if before == seen == 0:
            return True
    return False
