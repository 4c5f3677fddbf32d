"""kopf: events in, keys out. Nothing is decided, written or remembered here.

kopf runs in a thread and an event loop of its own (`EventSource`), because it ends, or falls silent, when its
watches fail (API errors 403, 404 and 410 end the whole operator), and because on its way out it cancels every
task of the loop that it lives in. Here that cannot matter: it is started again, and `tandem.resync` compares
what it said with what the API server lists.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kopf
from kopf._cogs.structs.references import Insights  # an argument of kopf.operator(), exported nowhere else

from tandem import names
from tandem.cluster.kinds import (
    CHILDREN,
    HORIZONTAL_POD_AUTOSCALER,
    OPTIONAL,
    POD,
    SCALED_OBJECT,
    SERVICES_KIND,
    WATCHED,
    Kind,
)
from tandem.digest import digest
from tandem.reconcile import Key

log = logging.getLogger(__name__)

Seen = dict[tuple[str, str], tuple[str, Key | None]]
"""(kind, uid) to the resourceVersion of the last event, and the key of the service concerned."""
Said = dict[tuple[str, str], str]
"""(kind, uid) of autoscalers to the digest of what we act on."""


class Backoffs:
    """Delays between tries of one request, in seconds, for ever: kopf must never give up a watch."""

    def __iter__(self) -> Iterator[float]:
        for attempt in itertools.count():
            yield min(10.0, 0.5 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)


class EventSource:
    """Watches our kind and its children, and calls `on_event` with the key of the service concerned.

    Make and use it in the event loop that is to be told; `on_event` is called there.
    """

    def __init__(self, on_event: Callable[[Key], None]) -> None:
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._insights = Insights()
        self._kinds: tuple[Kind, ...] = WATCHED
        self.scopes: Sequence[str | None] = ()
        """Namespaces that are watched; None stands for all."""
        self.seen: Seen = {}
        """Written by kopf's thread alone; reading one entry from another is atomic."""
        self._said: Said = {}

    @property
    def alive(self) -> bool:
        """Whether kopf runs (its watches may still be dead: see `tandem.resync`)."""
        return not self._ended.is_set()

    @property
    def watching(self) -> bool:
        """Whether kopf logged in, found every kind that is watched, and has started their watches."""
        found = {resource.plural for resource in self._insights.watched_resources}
        return self.alive and found >= {kind.plural for kind in self._kinds}

    async def run(self, scopes: Sequence[str | None], optional: Sequence[Kind] = ()) -> None:
        """Start kopf's thread for `scopes`, and return when it ended or was given up by `stop()`.

        `optional`: kinds to watch beside those that every cluster has; kopf ends where one is missing.
        """
        self.seen, self._said = {}, {}
        self._kinds, self.scopes = (*WATCHED, *optional), scopes
        self._stop, self._ended, self._insights = threading.Event(), asyncio.Event(), Insights()
        arguments = (self._stop, self._ended, (self.seen, self._said), self._insights)
        threading.Thread(target=self._run, args=arguments, name="kopf", daemon=True).start()
        await self._ended.wait()

    async def stop(self, timeout_seconds: float = 10) -> None:
        """Ask kopf to end and wait for it; one that does not is left behind, its events ignored."""
        self._stop.set()
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_seconds)
        except TimeoutError:
            log.error("kopf does not end: its thread is left behind")
            self._ended.set()

    def _run(self, stop: threading.Event, ended: asyncio.Event, told: tuple[Seen, Said], insights: Insights) -> None:
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry(stop, *told),
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

    def _registry(self, stop: threading.Event, seen: Seen, said: Said) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login)

        def handler(kind: Kind) -> Callable[..., Any]:
            async def on_event(event: kopf.RawEvent, **_: Any) -> None:
                if stop.is_set():
                    return
                if key := note(seen, said, kind, event):
                    self._loop.call_soon_threadsafe(self._on_event, key)

            on_event.__name__ = f"on_{kind.plural}"
            return on_event

        for kind in self._kinds:
            kopf.on.event(*kind.group_version, kind.plural, registry=registry)(handler(kind))
        return registry


def note(seen: Seen, said: Said, kind: Kind, event: Mapping[str, Any]) -> Key | None:
    """Remember an event in `seen` and `said`; the key of the service concerned, None when there is none.

    Autoscalers write the figure that they read into their status, every 15 s: that alone concerns nobody.
    """
    meta = event["object"]["metadata"]
    entry = (kind.kind, str(meta["uid"]))
    if event["type"] == "DELETED":
        seen.pop(entry, None)
        said.pop(entry, None)
        return service_key(kind, meta)
    seen[entry] = str(meta["resourceVersion"]), service_key(kind, meta)
    if kind in (HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT):
        before, said[entry] = said.get(entry), _said(event["object"])
        if before == said[entry]:
            return None
    return service_key(kind, meta)


def _said(autoscaler: Mapping[str, Any]) -> str:
    """Digest of an autoscaler's spec, its owner and labels, and how its conditions stand."""
    meta, status = autoscaler["metadata"], autoscaler.get("status", {})
    stands = [[c.get(field) for field in ("type", "status", "reason")] for c in status.get("conditions", [])]
    ours = [meta.get(field) for field in ("labels", "ownerReferences", "deletionTimestamp")]
    return digest({"spec": autoscaler.get("spec"), "metadata": ours, "conditions": stands})


def service_key(kind: Kind, meta: Mapping[str, Any]) -> Key | None:
    """Key of the service that an object is, or belongs to; None when it belongs to none."""
    name = meta["name"] if kind is SERVICES_KIND else meta.get("labels", {}).get(names.LABEL_SERVICE)
    return Key(meta["namespace"], name) if name else None


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Tandem posts its own Events
    settings.scanning.disabled = True  # no watching of CRDs and namespaces: fewer rights
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.watching.connect_timeout = 10
    settings.watching.server_timeout = 290
    settings.watching.chunk_size = 500
    for kind in (*CHILDREN, *OPTIONAL, POD):
        settings.watching.label_selectors[(*kind.group_version, kind.plural)] = names.watch_selector()
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
