"""Attacks on a server's ports, and what they do to others: its memory, a stream that runs, its probes."""

import contextlib
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from support.resident import forget_peak, resident_mib

SECONDS = 120
KEPT_SECONDS = 2
OTHER_FILES = 200
MOST_GROWTH_MIB = 64
MOST_PAUSE_SECONDS = 2.0
MOST_LIVE_SECONDS = 4.0
"""Four times what is promised, 0.5 s and 1 s: a busy machine's processor is as much slower. `-s` prints what it was:
on a quiet machine of two cores 0.27 s and 0.41 s at most."""
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """Status 0: the connection was closed without one."""

    status: int
    message: str
    text: str = ""


Attack = Callable[[int], Sequence[Answer]]
"""Gets a port, gives the answers that came."""


class Row(NamedTuple):
    """`statuses`: that the answers may have; none: none needs to come. `says`: in each of them."""

    name: str
    attack: Attack
    statuses: tuple[int, ...]
    says: str


def read_answer(connection: socket.socket) -> Answer:
    """The first answer of HTTP on a connection, up to its end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while not _whole(data) and (part := connection.recv(1 << 16)):
            data += part
    while data.startswith(b"HTTP/1.1 100"):  # the server asks whether its client still reads
        data = data.partition(b"\r\n\r\n")[2]
    if not data.startswith(b"HTTP/1."):  # nothing, or HTTP/2's farewell
        return Answer(0, "")
    head, _, body = data.partition(b"\r\n\r\n")
    text = _unchunked(head, body).decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        error = json.loads(text)["error"]
        return Answer(int(head.split()[1]), error if isinstance(error, str) else error["message"], text)
    return Answer(int(head.split()[1]), "", text)


def _unchunked(head: bytes, body: bytes) -> bytes:
    """A body in one chunk, or in none."""
    return body.split(b"\r\n")[1] if b"transfer-encoding: chunked" in head.lower() else body


def _whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":-1")
    return bool(end) and len(body) >= int(length.partition(b":")[2]) >= 0


def request(path: str, body: bytes, headers: Mapping[str, str], method: str = "POST") -> bytes:
    """HTTP/1.1, as it is written."""
    given = {"Host": "x", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def connect(port: int) -> socket.socket:
    """A connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def sends(data: bytes, half_close: bool = False) -> Attack:
    """Sends it, perhaps says that no more comes, and reads the answer."""

    def attack(port: int) -> list[Answer]:
        with connect(port) as connection:
            with contextlib.suppress(ConnectionError):  # it may be refused before it is sent
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            return [read_answer(connection)]

    return attack


def posts(path: str, body: bytes | Mapping[str, Any], headers: Mapping[str, str] = JSON) -> Attack:
    """A request with this body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return sends(request(path, data, headers))


def opens(connections: int, data: bytes, pause: float = 0.0) -> Attack:
    """Opens connections with a pause between them, sends as much of a request on each, keeps them for a while, and
    reads what some of them were told."""

    def attack(port: int) -> list[Answer]:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with contextlib.ExitStack() as opened:
            held = list[socket.socket]()
            for _ in range(min(connections, most - OTHER_FILES)):
                held.append(opened.enter_context(connect(port)))
                with contextlib.suppress(ConnectionError):
                    held[-1].sendall(data)
                time.sleep(pause)
            time.sleep(KEPT_SECONDS)
            told = [each for each in held[:20] if data and _readable(each)]
            return [read_answer(each) for each in told]

    return attack


def _readable(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
    finally:
        connection.settimeout(SECONDS)


def at_once(attack: Attack, times: int) -> Attack:
    """It, so many times at once."""

    def attacks(port: int) -> list[Answer]:
        answers = list[Answer]()
        threads = [threading.Thread(target=lambda: answers.extend(attack(port))) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    return attacks


@dataclass
class Others:
    """What others see during an attack: the longest pause of a stream and of the probe, in seconds (`_gap`).

    `stream`: opens one that goes on for ever; `probe`: asks, and raises where there is no answer; `pid`: its server.
    """

    pid: int
    stream: Callable[[], Iterator[Any]]
    probe: Callable[[], None]
    pause: float = 0.0
    live: float = 0.0
    failed: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Measure while in it."""
        self.pause = self.live = 0.0
        self.failed.clear()
        over, begun = threading.Event(), threading.Event()
        threads = [
            threading.Thread(target=self._guarded, args=(watch, over, begun)) for watch in (self._read, self._ask)
        ]
        for thread in threads:
            thread.start()
        begun.wait(SECONDS)
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _guarded(self, watch: Callable[..., None], over: threading.Event, begun: threading.Event) -> None:
        try:
            watch(over, begun)
        except Exception as error:  # noqa: BLE001 # for the test, in its own thread
            self.failed.append(error)
            begun.set()

    def _read(self, over: threading.Event, begun: threading.Event) -> None:
        last = None
        for _ in self.stream():
            now = self._now()
            self.pause, last = max(self.pause, _gap(last, now) if last else 0.0), now
            begun.set()
            if over.is_set():
                return

    def _ask(self, over: threading.Event, _: threading.Event) -> None:
        while not over.is_set():
            start = self._now()
            self.probe()
            self.live = max(self.live, _gap(start, self._now()))
            time.sleep(0.05)

    def _now(self) -> tuple[float, float]:
        """Two clocks: one that stands while the server's main thread, or this thread, waits for a processor, and the
        server's own processor time."""
        waited = sum(int(Path(f"/proc/{of}/schedstat").read_text().split()[1]) for of in (self.pid, "thread-self"))
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return time.monotonic() - waited / 1e9, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _gap(start: tuple[float, float], end: tuple[float, float]) -> float:
    """Seconds that the server is to blame for: it was busy, and nobody waited for a processor. On a quiet machine
    both clocks agree; on a busy one each of them also counts what others do."""
    return min(end[0] - start[0], end[1] - start[1])


def check(row: Row, port: int, others: Others) -> None:
    """Attack a port: nothing may happen to others, and each answer must help."""
    before = forget_peak(others.pid)
    with others.watched():
        answers = row.attack(port)
    print(f"longest pause {others.pause:.2f} s, probe {others.live:.2f} s")
    assert not others.failed
    assert resident_mib(others.pid) - before < MOST_GROWTH_MIB
    for answer in answers:
        assert answer.status in row.statuses or not row.statuses, answer
        assert row.says in answer.message, answer
    assert answers or not row.statuses
    assert others.pause < MOST_PAUSE_SECONDS, "a stream stood still"
    assert others.live < MOST_LIVE_SECONDS, "a probe waited"
