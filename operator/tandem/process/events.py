"""kopf: events of services in, keys out. Nothing is decided, written or remembered here.

kopf runs in a thread and an event loop of its own (`EventSource`), because it ends, or falls silent, when its
watches fail (API errors 403, 404 and 410 end the whole operator), and because on its way out it cancels every
task of the loop that it lives in. Here that cannot matter: it is started again, and `tandem.process.resync` compares
what it reported with what the API server lists. Children are watched by `tandem.process.watches`.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kopf
from kopf._cogs.structs.references import Insights  # an argument of kopf.operator(), exported nowhere else

from tandem.cluster.kinds import SERVICES_KIND
from tandem.process.reconcile import Key
from tandem.process.watches import Sighting, sight

log = logging.getLogger(__name__)

LIST_SILENT_SECONDS = 30.0
"""kopf does not report the end of its list: it has ended when a change was reported, or nothing for so long."""


class Backoffs:
    """Delays between tries of one request, in seconds, for ever: kopf must never give up a watch."""

    def __iter__(self) -> Iterator[float]:
        for attempt in itertools.count():
            yield min(10.0, 0.5 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)


class EventSource:
    """Watches services; calls `on_event` with their keys, and whether the operator has yet to look at their specs.

    Make and use it in one event loop; `on_event` is called there.
    """

    kind = SERVICES_KIND
    namespace: str | None = None

    def __init__(self, on_event: Callable[[Key, bool], None]) -> None:
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._insights = Insights()
        self.scopes: Sequence[str | None] = ()
        """Namespaces that are watched; None stands for all."""
        self.seen: dict[str, Sighting] = {}
        """Written by kopf's thread alone; reading one entry from another is atomic."""
        self.heard_at = 0.0
        """Monotonic time of the last event, or of the start."""
        self._streams = False

    @property
    def alive(self) -> bool:
        """Whether kopf runs (its watches may still be dead: see `tandem.process.resync`)."""
        return not self._ended.is_set()

    @property
    def watching(self) -> bool:
        """Whether kopf logged in, found services among the kinds, and has started their watches."""
        found = {resource.plural for resource in self._insights.watched_resources}
        return self.alive and SERVICES_KIND.plural in found

    @property
    def lists(self) -> bool:
        """Whether kopf is on its way to the end of its first list, as far as can be observed."""
        silent = time.monotonic() - self.heard_at >= LIST_SILENT_SECONDS
        return self.alive and not (self._streams or silent)

    @property
    def follows(self) -> bool:
        """Whether the first list has ended and the watch goes on."""
        return self.watching and not self.lists

    async def run(self, scopes: Sequence[str | None]) -> None:
        """Start kopf's thread for `scopes`, and return when it ended or was given up by `stop()`."""
        self.seen, self.scopes = {}, scopes
        self.heard_at, self._streams = time.monotonic(), False
        self._stop, self._ended, self._insights = threading.Event(), asyncio.Event(), Insights()
        arguments = (self._stop, self._ended, self.seen, self._insights)
        threading.Thread(target=self._run, args=arguments, name="kopf", daemon=True).start()
        await self._ended.wait()

    async def restart(self) -> None:
        """Have kopf end; whoever runs it starts it again."""
        await self.stop()

    async def stop(self, timeout_seconds: float = 10) -> None:
        """Ask kopf to end and wait for it; one that does not is left behind, its events ignored."""
        self._stop.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ended.wait()
        except TimeoutError:
            log.error("kopf does not end: its thread is left behind")
            self._ended.set()

    def _run(
        self, stop: threading.Event, ended: asyncio.Event, seen: dict[str, Sighting], insights: Insights
    ) -> None:
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry(stop, seen),
                    settings=_settings(),
                    insights=insights,
                    clusterwide=None in self.scopes,
                    namespaces=[namespace for namespace in self.scopes if namespace],
                    standalone=True,
                    stop_flag=stop,
                )
            )
        except Exception:  # kopf raises whatever its watches do; the operator starts it again
            log.exception("kopf ended")
        finally:
            with contextlib.suppress(RuntimeError):  # the operator's loop may be closed already
                self._loop.call_soon_threadsafe(ended.set)

    def _registry(self, stop: threading.Event, seen: dict[str, Sighting]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login)

        async def on_event(event: kopf.RawEvent, **_: Any) -> None:
            if stop.is_set():
                return
            key = note(seen, event)
            self.heard_at, self._streams = time.monotonic(), self._streams or event["type"] is not None
            self._loop.call_soon_threadsafe(self._on_event, key, is_new(event))

        kopf.on.event(*SERVICES_KIND.group_version, SERVICES_KIND.plural, registry=registry)(on_event)
        return registry


def note(seen: dict[str, Sighting], event: Mapping[str, Any]) -> Key:
    """Remember an event in `seen`; the key of the service concerned."""
    uid, sighting = str(event["object"]["metadata"]["uid"]), sight(SERVICES_KIND, event["object"])
    if event["type"] == "DELETED":
        seen.pop(uid, None)
    else:
        seen[uid] = sighting
    assert sighting.key  # every service has one
    return sighting.key


def is_new(event: Mapping[str, Any]) -> bool:
    """Whether the spec is one that the status does not speak of yet."""
    service = event["object"]
    shown = service.get("status", {}).get("observedGeneration")
    return bool(event["type"] != "DELETED" and shown != service["metadata"].get("generation"))


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Tandem posts its own Events
    settings.scanning.disabled = True  # no watching of CRDs and namespaces: fewer rights
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.watching.connect_timeout = 10
    settings.watching.server_timeout = 290
    settings.watching.chunk_size = 100  # whole services, of up to 20 KB each
    settings.queueing.idle_timeout = 1.0  # for which each that was seen keeps a task, and its whole object
    return settings


async def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The pod's service account, else the kubeconfig; read anew each time, so that rotated tokens are found."""
    in_cluster = kopf.login_with_service_account(**kwargs)
    if in_cluster is None:
        return kopf.login_with_kubeconfig(**kwargs)
    # kopf takes the name kubernetes.default.svc: the watches would need a DNS that the rest does without.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return dataclasses.replace(
        in_cluster, server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    )
