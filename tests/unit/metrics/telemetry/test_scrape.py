"""The scrape, against servers on the loopback: a hostile pod costs bounded time and memory, and itself alone."""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import numpy as np
import pytest

from tandem.metrics.telemetry.page import Page
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import MAX_PROBLEM, ScrapeTarget, problem
from tandem.metrics.telemetry.windows import Store
from unit.metrics.telemetry.hostile_pods import OK, Answer, Pod, bomb, endless, fixed, leaves, serve, silent
from unit.metrics.telemetry.metrics_pages import TRITON

PAGE = f"{TRITON}tandem_requests_running 3\ntandem_generation_tokens_total 70\n".encode()
# Above what a busy machine takes for a good pod on the loopback: hostile ones take all of it.
LIMITS = ScrapeLimits(spread_seconds=0.0, seconds=5, connect_seconds=5)
BOUNDED_SECONDS = 100
"""More than anything takes that has an end, also where the machine stands still for a while."""
GOOD = fixed(PAGE)
CHUNKED = OK + b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
MB = b"x" * (1 << 20)


class Told(Store):
    """A store that remembers who was read."""

    def __init__(self) -> None:
        super().__init__(300)
        self.pods: dict[str, Page] = {}

    def add(self, pod: str, at: float, page: Page) -> None:
        assert abs(at - time.time()) < BOUNDED_SECONDS
        self.pods[pod] = page
        super().add(pod, at, page)


def target(uid: str, pod: Pod, address: str = "127.0.0.1") -> ScrapeTarget:
    return ScrapeTarget(uid, "ns", f"pod-{uid}", address, pod.port)


@contextlib.asynccontextmanager
async def pods(*answers: Answer) -> AsyncIterator[list[Pod]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serve(answer)) for answer in answers]


async def read(*targets: ScrapeTarget, limits: ScrapeLimits = LIMITS) -> tuple[dict[str, str], Told]:
    store = Told()
    async with Scraper(limits) as scraper:
        return dict(await scraper.collect(targets, store)), store


async def test_pods_are_read() -> None:
    async with pods(GOOD, GOOD) as (a, b):
        problems, store = await read(target("a", a), target("b", b))
    assert problems == {}
    assert store.pods.keys() == {"a", "b"}
    assert store.pods["a"].gauges == {"running": 3}
    assert a.request.startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"Accept-Encoding: identity" in a.request


HOSTILE: dict[str, tuple[Answer, str]] = {
    "10 MB": (fixed(b"tandem_requests_running 3\n" * 400_000), "longer than 1048576 bytes"),
    "endless": (endless(CHUNKED, b"100000\r\n" + MB + b"\r\n"), "longer than 1048576 bytes"),
    "endless, without a length": (endless(OK + b"\r\n", MB), "longer than 1048576 bytes"),
    "a byte now and then": (endless(CHUNKED, b"1\r\n\n\r\n", pause=0.02), "no whole answer within 5 s"),
    "never an answer": (silent, "no whole answer within 5 s"),
    "closes midway": (leaves, "the answer broke off"),
    "HTML": (fixed(b"<html></html>\n", "Content-Type: text/html\r\n"), "answered with text/html"),
    "HTML that says it is text": (fixed(b"<html></html>\n"), "HTML or JSON"),
    "JSON": (fixed(b"{}\n", "Content-Type: application/json\r\n"), "answered with application/json"),
    "wrong types": (fixed(b"tandem_requests_running many\n"), "'many' is no number"),
    "not found": (fixed(b"", status="404 Not Found"), "answered 404 instead of 200"),
    "no HTTP": (endless(b"SSH-2.0-OpenSSH_9.2\r\n", b""), "no answer in HTTP"),
    "a compressed bomb": (fixed(bomb(), "Content-Encoding: gzip\r\n"), "encoding gzip, which was not requested"),
    "many headers": (endless(OK, b"X-Header: 1\r\n" * 1000), "no answer in HTTP"),
    "a long header": (endless(OK + b"X-Header: ", MB), "no answer in HTTP"),
    "a long first line": (endless(b"HTTP/1.1 200 ", MB), "no answer in HTTP"),
    "endless early answers": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000), "no (whole )?answer"),
    "endless extensions of a chunk": (endless(CHUNKED + b"1;", MB), "the answer broke off"),
    "control characters": (
        fixed(b"", status="302 \x1b[2J", headers="Location: http://x\r\n"),
        "answered 302 instead of 200",
    ),
}


@pytest.mark.parametrize(("answer", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_pod_costs_itself_alone(answer: Answer, reason: str) -> None:
    async with pods(GOOD, answer, GOOD) as (a, hostile, b):
        start = time.monotonic()
        problems, store = await read(target("a", a), target("hostile", hostile), target("b", b))
        seconds = time.monotonic() - start
    assert store.pods.keys() == {"a", "b"}, "the others go on"
    assert problems.keys() == {"hostile"}
    assert re.search(reason, problems["hostile"]), problems
    assert problems["hostile"].isprintable()
    assert seconds < BOUNDED_SECONDS
    assert hostile.asked <= 2, "aiohttp asks once more where a connection ends without an answer"
    assert hostile.written < 12 << 20, "the limit, and what the kernel takes in ahead"


async def test_no_redirect_is_followed() -> None:
    async with pods(GOOD) as (other,):
        redirect = fixed(b"", f"Location: http://127.0.0.1:{other.port}/metrics\r\n", "302 Found")
        async with pods(redirect) as (pod,):
            problems, store = await read(target("a", pod))
    assert (problems, store.pods, other.asked) == ({"a": "answered 302 instead of 200"}, {}, 0)


async def test_a_pod_that_takes_no_connection_is_given_up_early() -> None:
    """A full backlog drops packets as a NetworkPolicy does."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        start = time.monotonic()
        problems, _ = await read(
            target("a", Pod(port)), limits=ScrapeLimits(spread_seconds=0, seconds=120, connect_seconds=0.2)
        )
        assert "no whole answer" in problems["a"]
        assert time.monotonic() - start < BOUNDED_SECONDS, "not the 120 s that a whole answer may take"


@pytest.mark.parametrize("address", ["pod.evil.example", "localhost", "127.0.0.1@evil.example", "", "1", "127.1"])
async def test_an_address_is_never_a_name(address: str) -> None:
    async with pods(GOOD) as (pod,):
        problems, _ = await read(target("a", pod, address))
    assert problems == {"a": f"{address!r} is no IP address"}
    assert pod.asked == 0


async def test_nobody_listens() -> None:
    async with pods(GOOD) as (pod,):
        gone = target("a", pod)
    problems, _ = await read(gone)
    assert problems == {"a": f"no connection to its port {gone.port}: Connection refused"}


async def test_ipv6() -> None:
    async with serve(GOOD, "::1") as pod:
        problems, store = await read(target("a", pod, "::1"))
    assert (problems, list(store.pods)) == ({}, ["a"])
    assert b"Host: [::1]" in pod.request


async def test_only_so_many_at_once_and_waiting_for_a_place_is_not_a_pods_time() -> None:
    """All together wait for longer than one may take; again, where the machine stood still for so long."""
    at_once, most = 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.45)
        at_once -= 1
        await GOOD(reader, writer)

    async with serve(slow) as pod:
        targets = [target(str(n), pod) for n in range(20)]
        for _ in range(3):
            limits = ScrapeLimits(spread_seconds=0, seconds=4, connections=2)
            problems, store = await read(*targets, limits=limits)
            if not problems:
                break
    assert problems == {}
    assert len(store.pods) == 20
    assert most == 2


async def test_many_pods_that_hang_delay_the_others_and_no_more() -> None:
    async with pods(silent, GOOD) as (hangs, fine):
        targets = [target(f"hangs-{n}", hangs) for n in range(60)] + [target(f"fine-{n}", fine) for n in range(6)]
        start = time.monotonic()
        problems, store = await read(*targets, limits=ScrapeLimits(spread_seconds=0.2, seconds=4, connections=20))
    assert store.pods.keys() == {f"fine-{n}" for n in range(6)}
    assert problems.keys() == {f"hangs-{n}" for n in range(60)}
    assert time.monotonic() - start < BOUNDED_SECONDS, "60 pods, 20 at a time, 4 s each: one by one would take 240 s"


async def test_each_pod_has_its_own_moment_the_same_in_every_round() -> None:
    """A busy machine delays some, and mixes nobody up; one that stands still spoils a round, so it has some more."""
    rounds: list[list[float]] = []
    alike = 0.0
    async with serve(GOOD) as pod:
        targets = [target(f"uid-{n}", pod) for n in range(40)]
        while alike < 0.9 and len(rounds) < 6:
            start = time.time()
            store = (await read(*targets, limits=ScrapeLimits(spread_seconds=2.0, seconds=60, connect_seconds=60)))[1]
            rounds.append([(store.latest(t.uid) or 0) - start for t in targets])
            alike = np.corrcoef(rounds[-2:])[0, 1] if len(rounds) > 1 else 0.0
    assert alike >= 0.9
    assert max(rounds[-1]) - min(rounds[-1]) > 1.2, "spread"


async def test_a_defect_that_a_page_finds_costs_that_pod_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pods(GOOD, fixed(b"tandem_requests_running 666\n")) as (a, b):

        class Broken(Told):
            def add(self, pod: str, at: float, page: Page) -> None:
                if pod == "b":
                    raise ZeroDivisionError
                super().add(pod, at, page)

        store = Broken()
        async with Scraper(LIMITS) as scraper:
            problems = await scraper.collect([target("a", a), target("b", b)], store)
    assert store.pods.keys() == {"a"}
    assert problems == {"b": "its metrics could not be read: see the metrics server's log"}


TEXTS = {
    "fine": ("fine", "fine"),
    "no control characters": ("a\x1b[2J\nb\tc\x7f", "a?[2J?b?c?"),
    "nothing that turns text around": ("a\u202eb", "a?b"),
    "bounded": ("x" * 1000, "x" * (MAX_PROBLEM - 3) + "..."),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_a_problem_is_one_printable_line(text: str, expected: str) -> None:
    assert problem(text) == expected
