"""A server that is told to stop: when it counts as idle."""

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat

import pytest

from tandem_serving.boot import drain
from tandem_serving.boot.drain import POLL_SECONDS, requests_left, wait_idle

ROWS = [
    ("two looks find nothing", [0, 0], True, 1),
    ("one look may come before the gauges", [0, 1, 0, 0], True, 3),
    ("requests end", [3, 2, 1, 0, 0], True, 4),
    ("a request that never ends is cut when its time is over", [1], False, 8),
]


@pytest.mark.parametrize(("reason", "looks", "idle", "polls"), ROWS, ids=[row[0] for row in ROWS])
def test_when_it_is_idle(reason: str, looks: list[float], idle: bool, polls: int) -> None:
    now, seen = [0.0], chain(looks, repeat(looks[-1]))

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert wait_idle(lambda: next(seen), 10, sleep, lambda: now[0]) is idle, reason
    assert now[0] == pytest.approx(polls * POLL_SECONDS)


ANSWERS: list[tuple[bytes | None, float, str]] = [
    (b"HTTP/1.1 200 OK\r\n\r\ntandem_requests_running 2\ntandem_requests_waiting 1\n", 3, "it says"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ntandem_", 0, "it ends while it says"),
    (b"", 0, "it ends before"),
    (None, math.inf, "too busy to say: its streams are not cut"),
]


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"], ids=["", "in a pod with a proxy"])
@pytest.mark.parametrize(("answer", "left", "reason"), ANSWERS, ids=[row[2] for row in ANSWERS])
def test_what_a_server_says(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, left: float, reason: str, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    if answer is None:
        monkeypatch.setattr(drain, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests_left, server.getsockname()[1])
        server.settimeout(30)
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            if answer is not None:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
            assert asked.result() == left, reason


def test_a_server_that_is_not_there_has_no_requests() -> None:
    assert requests_left(1) == 0
