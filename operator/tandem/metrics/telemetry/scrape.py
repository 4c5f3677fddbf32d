"""Pods' metrics, read from the pods. A pod may be hostile: whatever it answers costs bounded time and memory, and
only its own figures."""

import asyncio
import hashlib
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp
from yarl import URL

from tandem.metrics.telemetry.exposition import parse
from tandem.metrics.telemetry.page import PageError
from tandem.metrics.telemetry.source import ScrapeTarget, problem
from tandem.metrics.telemetry.windows import Store

log = logging.getLogger(__name__)

# Names of types that no server gives its metrics; others, or none, are read.
_NO_METRICS = ("html", "json", "xml", "image", "video", "audio")


@dataclass(frozen=True)
class ScrapeLimits:
    """What reading may cost."""

    spread_seconds: float = 10.0
    """Pods are read over this time, each at a moment of its own."""
    connections: int = 128
    """Pods read at once."""
    seconds: float = 3.0
    """For a pod, all in all."""
    connect_seconds: float = 1.0
    """For its connection: packets that a policy drops must not hold places for long."""
    page_bytes: int = 1 << 20
    """Triton's pages are some ten KiB."""

    @property
    def bytes(self) -> int:
        """Read of a connection, whatever comes: a page, and as much as headers may take."""
        return self.page_bytes + (64 << 10)


class _Metered(socket.socket):
    """A socket that ends after so many bytes. HTTP has ways to send without end what no reader of a body counts:
    early answers (1xx), a chunk's extensions."""

    left = 0

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(min(size, self.left), flags)
        self.left -= len(data)
        return data


class Scraper:
    """Reads `http://ADDRESS:PORT/metrics`. A `MetricsSource`; an async context manager."""

    def __init__(self, limits: ScrapeLimits | None = None) -> None:
        self._limits = limits or ScrapeLimits()
        self._slots = asyncio.Semaphore(self._limits.connections)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limits = self._limits
        self._session = aiohttp.ClientSession(
            # Its own limit would count the wait for a place as the pod's time.
            connector=aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(total=limits.seconds, sock_connect=limits.connect_seconds),
            headers={"Accept": "text/plain", "Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def collect(self, targets: Sequence[ScrapeTarget], store: Store) -> Mapping[str, str]:
        """Read all pods once, spread over the time that the limits give; see `MetricsSource`."""
        problems: dict[str, str] = {}
        async with asyncio.TaskGroup() as group:
            for target in targets:
                group.create_task(self._read(target, store, problems))
        return problems

    async def _read(self, target: ScrapeTarget, store: Store, problems: dict[str, str]) -> None:
        await asyncio.sleep(_phase(target.uid) * self._limits.spread_seconds)
        try:
            async with self._slots:
                text = await self._fetch(target)
            store.add(target.uid, time.time(), parse(text))
        except PageError as error:
            problems[target.uid] = problem(str(error))
        except Exception:  # a defect that one pod's page finds must not stop the others
            log.exception("cannot read the metrics of pod %s/%s", target.namespace, target.name)
            problems[target.uid] = "its metrics could not be read: see the metrics server's log"

    async def _fetch(self, target: ScrapeTarget) -> bytes:
        """The page's bytes. Raises PageError."""
        assert self._session is not None, "use the scraper as a context manager"
        try:
            async with self._session.get(_url(target), allow_redirects=False) as reply:
                _check(reply)
                return await self._body(reply)
        except TimeoutError:
            raise PageError(f"no whole answer within {self._limits.seconds:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise PageError(f"no connection to its port {target.port}: {os.strerror(error.errno or 0)}") from None
        except aiohttp.ClientPayloadError:
            raise PageError("the answer broke off") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise PageError("no answer in HTTP") from None

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        metered = _Metered(family, kind, protocol)
        metered.left = self._limits.bytes
        return metered

    async def _body(self, reply: aiohttp.ClientResponse) -> bytes:
        body, most = bytearray(), self._limits.page_bytes
        async for part in reply.content.iter_any():
            body += part
            if len(body) > most:
                raise PageError(f"the page is longer than {most} bytes")
        return bytes(body)


def _check(reply: aiohttp.ClientResponse) -> None:
    if reply.status != 200:
        raise PageError(f"answered {reply.status} instead of 200")
    kind = reply.headers.get("Content-Type", "").lower()
    if any(word in kind for word in _NO_METRICS):
        raise PageError(f"answered with {kind}, not with metrics")
    if (encoding := reply.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise PageError(f"answered with encoding {encoding}, which was not requested")


def _url(target: ScrapeTarget) -> URL:
    try:
        address = ipaddress.ip_address(target.address)
    except ValueError:
        raise PageError(f"{target.address!r} is no IP address") from None
    return URL.build(scheme="http", host=str(address), port=target.port, path="/metrics")


def _phase(uid: str) -> float:
    """A pod's own moment within a round, from 0 to 1: the same in every round."""
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=4).digest()) / 2**32
