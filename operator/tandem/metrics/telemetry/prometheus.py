"""Pods' metrics, read from a Prometheus that scrapes them (a PodMonitor, with the labels `namespace` and `pod`).

One query brings the raw samples of the last minute, with the times of Prometheus' scrapes: from there on they take
the same way as pages. A single query sees a scrape as a whole or not at all. For figures Prometheus must scrape the
pods at least twice within their window.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import aiohttp

from tandem.http.credentials import Credentials, CredentialsError
from tandem.metrics.telemetry.families import NAMES
from tandem.metrics.telemetry.page import LABELS, MAX_SERIES, Page, PageError, series
from tandem.metrics.telemetry.source import ScrapeTarget, problem
from tandem.metrics.telemetry.windows import Store

QUERY = f'{{__name__=~"{"|".join(NAMES)}"}}[1m]'
SECONDS = 10.0
SET_BACK = 120.0
"""A minute that ended so long before the newest sample means that Prometheus' clock was set back. Less may be of
another Prometheus behind the same address."""
MAX_BYTES = 64 << 20
"""Of an answer, which has about 39 KiB for each pod that is scraped every 15 s. With what is made of it, it takes
three times as much memory (docs/design/collector.md), for which there is room within the chart's limit."""

READ = ("__name__", *LABELS)
"""Labels of a sample that are kept."""
Scrape = list[tuple[Mapping[str, str], float]]
"""Labels that are read (with `__name__`) and value of the samples that Prometheus took of a pod at one time."""
Pods = Mapping[tuple[str, str], Mapping[float, Scrape]]
"""Scrapes by namespace and name of the pod, and by time in Unix seconds."""


class PrometheusSource:
    """Reads `URL/api/v1/query`. A `MetricsSource`; an async context manager."""

    def __init__(self, url: str, credentials: Credentials | None = None) -> None:
        self._url, self._credentials = f"{url.rstrip('/')}/api/v1/query", credentials or Credentials()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def collect(self, targets: Sequence[ScrapeTarget], store: Store) -> Mapping[str, str]:
        """Ask once for all pods; see `MetricsSource`."""
        try:
            pods = await asyncio.to_thread(by_pod, await self._query())
        except (PageError, CredentialsError) as error:
            return {target.uid: problem(f"Prometheus {error}") for target in targets}
        problems = {}
        for target in targets:
            scrapes = pods.get((target.namespace, target.name), {})
            if reason := add(store, target.uid, scrapes):
                problems[target.uid] = problem(reason)
            await asyncio.sleep(0)  # others are served meanwhile
        return problems

    async def _query(self) -> bytearray:
        """The answer's body. Raises PageError, CredentialsError."""
        assert self._session is not None, "use Prometheus as a context manager"
        headers, trust = self._credentials.request_headers(), self._credentials.trust()
        body, query = bytearray(), {"query": QUERY}
        try:
            async with self._session.post(
                self._url, data=query, headers=headers, ssl=trust, allow_redirects=False
            ) as reply:
                async for part in reply.content.iter_any():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise PageError(f"answers with more than {MAX_BYTES >> 20} MiB: read the pods themselves")
        except TimeoutError:
            raise PageError(f"does not answer within {SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise PageError(f"cannot be reached: {error or type(error).__name__}") from None
        if reply.status != 200:
            raise PageError(f"answers {reply.status}: {body[:100].decode(errors='replace')}")
        return body


def by_pod(answer: bytes | bytearray) -> Pods:
    """The scrapes of all pods, from the answer to `QUERY`.

    Source: https://prometheus.io/docs/prometheus/latest/querying/api/#range-vectors

    Raises:
        PageError: this is no such answer.
    """
    reading = _Reading()
    try:
        found = json.loads(answer, object_hook=reading.take)["data"]["result"]
        others = [each for each in found if each is not None]
    except KeyError as missing:
        if missing.args[0] in {"namespace", "pod"}:
            raise PageError("has samples without the labels namespace and pod: a PodMonitor sets them") from None
        raise PageError(f"does not answer as its API should: there is no {missing}") from None
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise PageError(f"does not answer as its API should: {error}") from None
    if others:
        raise PageError("does not answer as its API should: its result has other than series")
    return reading.pods


class _Reading:
    """Takes each series as soon as it is parsed, and keeps equal labels once: all that JSON makes of an answer would
    be six times as large as it, and garbage collection take as long as parsing."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[float, Scrape]] = {}
        self._labels: dict[tuple[str | None, ...], Mapping[str, str]] = {}

    def take(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """What becomes of an object of the answer; nothing of a series, which is in `pods` now."""
        labels = found.get("metric")
        if not isinstance(labels, dict):  # these are a series' own labels, of which one may have that name
            return found
        scrapes = self.pods.setdefault((labels["namespace"], labels["pod"]), {})
        read = self._read(labels)
        for at, value in found["values"]:
            scrapes.setdefault(float(at), []).append((read, float(value)))
        return None

    def _read(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(map(labels.get, READ))
        if key not in self._labels:
            self._labels[key] = {name: labels[name] for name in READ if name in labels}
        return self._labels[key]


def add(store: Store, pod: str, scrapes: Mapping[float, Scrape]) -> str:
    """Add a pod's scrapes that are new to the store.

    Returns:
        What is wrong with the last, or that there is none; empty: nothing.
    """
    latest, reason = store.latest(pod) or 0.0, ""
    if max(scrapes, default=latest) < latest - SET_BACK:
        latest = 0.0
    for at in sorted(at for at in scrapes if at > latest):
        try:
            store.add(pod, at, _page(scrapes[at]))
            reason = ""
        except PageError as error:
            reason = str(error)
    return reason if scrapes else "Prometheus has not scraped it within a minute: does a PodMonitor select it?"


def _page(scrape: Scrape) -> Page:
    if len(scrape) > MAX_SERIES:
        raise PageError(f"more than {MAX_SERIES} series: Tandem's models write about a hundred")
    page = Page()
    for labels, value in scrape:
        if found := series(labels["__name__"], labels):
            page.add(found, value)
    return page.known()
