"""The watches of the children: events in, keys out, as `tandem.process.events` does for services.

kopf watches services alone. It keeps kilobytes of every object that it has seen, reads all of them whole, and ends as
a whole where one of its watches fails: at ten children a service that is what a large cluster has most of. Here a
child is its resourceVersion and the key of its service, and each kind is by itself: one that may not be listed, or
whose watch is dead, leaves the others alone.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tandem import names
from tandem.cluster.client import JSON, METADATA_EVENTS, METADATA_ONLY, Api
from tandem.cluster.kinds import AUTOSCALERS, CHILDREN, OPTIONAL, POD, SERVICES_KIND, Kind
from tandem.cluster.reflector import Reflector
from tandem.digest import digest
from tandem.process.reconcile import Key

FIRST_LISTS_SECONDS = 120.0
"""Reconciles wait so long at most for the first lists, which would ask for all of them once more."""


class Sighting(NamedTuple):
    """What is kept of an object."""

    version: str
    """Its resourceVersion."""
    key: Key | None
    """Of the service that it is, or belongs to; None: of none."""
    digest: str = ""
    """Of what we act on, where not every change concerns us; empty: every change does."""


class Picture(Protocol):
    """What a watch reported of the objects of one kind in one namespace."""

    kind: Kind
    namespace: str | None
    """None: of all namespaces."""

    @property
    def seen(self) -> Mapping[str, Sighting]:
        """By UID."""

    @property
    def lists(self) -> bool:
        """Whether its first list goes on: what is not seen yet is on its way."""

    @property
    def follows(self) -> bool:
        """Whether its first list has ended and its watch goes on: what is not seen then was missed."""

    @property
    def heard_at(self) -> float:
        """Monotonic time of the last that came; 0 before the first."""

    async def restart(self) -> None:
        """List anew, and watch from there."""


def service_key(kind: Kind, meta: Mapping[str, Any]) -> Key | None:
    """Key of the service that an object is, or belongs to; None when it belongs to none."""
    name = meta["name"] if kind is SERVICES_KIND else meta.get("labels", {}).get(names.LABEL_SERVICE)
    # One text of each name, not one for each of its children.
    return Key(sys.intern(meta["namespace"]), sys.intern(name)) if name else None


def sight(kind: Kind, obj: Mapping[str, Any]) -> Sighting:
    """What is kept of an object.

    Autoscalers write the figure that they read into their status, every 15 s: that alone is no reason to reconcile.
    """
    meta = obj["metadata"]
    acted_on = _acted_on(obj) if kind in AUTOSCALERS else ""
    return Sighting(str(meta["resourceVersion"]), service_key(kind, meta), acted_on)


def concerns(before: Sighting | None, now: Sighting | None) -> bool:
    """Whether what became of an object asks for a reconcile."""
    return not (before and now and before.digest and before.digest == now.digest)


def keys(*sightings: Sighting | None) -> set[Key]:
    """Of the services that an object belonged to at each sighting."""
    return {each.key for each in sightings if each and each.key}


def _acted_on(autoscaler: Mapping[str, Any]) -> str:
    """Digest of an autoscaler's spec, its owner and labels, and how its conditions stand."""
    meta, status = autoscaler["metadata"], autoscaler.get("status", {})
    stands = [[c.get(field) for field in ("type", "status", "reason")] for c in status.get("conditions", [])]
    ours = [meta.get(field) for field in ("labels", "ownerReferences", "deletionTimestamp")]
    return digest({"spec": autoscaler.get("spec"), "metadata": ours, "conditions": stands})


class ChildWatch(Reflector[Sighting]):
    """One kind in one namespace (None: all)."""

    def __init__(self, api: Api, kind: Kind, namespace: str | None, on_event: Callable[[Key], None]) -> None:
        super().__init__(api, kind, namespace, names.watch_selector(), lambda obj: sight(kind, obj))
        self.accept = (JSON, JSON) if kind in AUTOSCALERS else (METADATA_ONLY, METADATA_EVENTS)
        self._on_event = on_event

    @property
    def lists(self) -> bool:
        """Whether its first list goes on; one that failed does not."""
        return not (self.listed.is_set() or self.problem)

    def changed(self, before: Sighting | None, now: Sighting | None) -> None:
        """Pass the service's key on; both, where somebody gave the child another service's label."""
        if concerns(before, now):
            for key in keys(before, now):
                self._on_event(key)


class ChildWatches:
    """Watches all kinds of children in the namespaces `scopes`; calls `on_event` with the keys of their services.

    A kind that this cluster does not have is looked for again and again.
    """

    def __init__(self, api: Api, scopes: Sequence[str | None], on_event: Callable[[Key], None]) -> None:
        self._on_event = on_event
        self._announces = False
        kinds = (*CHILDREN, *OPTIONAL, POD)
        self.all = [ChildWatch(api, kind, scope, self._announce) for scope in scopes for kind in kinds]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self.all:
                group.create_task(watch.run())

    async def first_lists(self) -> None:
        """Wait until each kind was listed, or could not be.

        Only from then on events are passed on: every service is reconciled at the start, by its own. Whoever begins
        to work before it misses what happens meanwhile.
        """
        deadline = time.monotonic() + FIRST_LISTS_SECONDS
        while time.monotonic() < deadline:
            if not any(watch.lists for watch in self.all):
                break
            await asyncio.sleep(0.05)
        self._announces = True

    def _announce(self, key: Key) -> None:
        if self._announces:
            self._on_event(key)
