"""Requests that wait for a thread, by their futures."""

import gc
import math
import weakref
from concurrent.futures import Future

import pytest

from tandem_serving.adapter.queue import RequestQueue


class Request:
    """Holds the tensors of a prompt."""


def test_who_waited_too_long_leaves_the_line_and_never_begins() -> None:
    line, futures = RequestQueue[str](timeout=1.0), [Future[None]() for _ in range(3)]
    for time, (name, future) in enumerate(zip("abc", futures, strict=True)):
        line.add(name, future, now=float(time))
    futures[0].set_running_or_notify_cancel()
    assert line.late(2.0) == []
    assert line.late(2.5) == [("b", 1.5)]
    assert [future.cancelled() for future in futures] == [False, True, False]
    assert line.late(2.5) == []


@pytest.mark.parametrize("timeout", [60.0, math.inf])
@pytest.mark.parametrize("over", [False, True], ids=["runs", "over"])
def test_a_request_that_has_begun_is_not_kept(timeout: float, over: bool) -> None:
    """Its tensors are in Triton's shared memory for as long."""
    line, future, request = RequestQueue[Request](timeout), Future[None](), Request()
    line.add(request, future, now=0.0)
    future.set_running_or_notify_cancel()
    if over:
        future.set_result(None)
    kept = weakref.ref(request)
    del request
    assert line.late(0.1) == []
    gc.collect()
    assert kept() is None
