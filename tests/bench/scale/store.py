"""The objects of the fake API server, as JSON text, and their history for watches."""

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tandem import names
from tandem.cluster.kinds import CACHE_CLAIM, CHILDREN, EVENT, LEASE, POD, SERVICES_KIND, Kind

Object = dict[str, Any]
KINDS: tuple[Kind, ...] = (SERVICES_KIND, *CHILDREN, POD, CACHE_CLAIM, LEASE, EVENT)
"""What this cluster knows: neither LeaderWorkerSets nor ScaledObjects are installed."""
BY_PLURAL = {kind.plural: kind for kind in KINDS}
HISTORY = 20_000
"""Events of a kind that a watch can begin behind."""


@dataclass(frozen=True)
class Stored:
    """An object. Text, as thousands of parsed ones take ten times as much memory."""

    namespace: str
    name: str
    service: str
    """Of the service that it is labelled with; empty: none."""
    whole: bytes
    partial: bytes
    """Its metadata alone."""

    @classmethod
    def of(cls, obj: Object) -> "Stored":
        """From an object."""
        meta = obj["metadata"]
        service = meta.get("labels", {}).get(names.LABEL_SERVICE, "")
        partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}
        return cls(meta["namespace"], meta["name"], service, _text(obj), _text(partial))


@dataclass(frozen=True)
class Event:
    """What happened to an object."""

    version: int
    type: str
    stored: Stored


class Store:
    """Objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.version = 1000
        self._objects: dict[str, dict[tuple[str, str], Stored]] = defaultdict(dict)
        self._of_service: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self._history: dict[str, deque[Event]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._watches: dict[str, set[asyncio.Queue[Event]]] = defaultdict(set)
        self.quiet = False
        """While objects are stored that no watch is to be told of."""

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """The object, parsed; None: there is none."""
        stored = self._objects[plural].get((namespace, name))
        return json.loads(stored.whole) if stored else None

    def listed(self, plural: str, namespace: str, service: str) -> list[Stored]:
        """By namespace and service; empty: of all. In an order that pages can go by."""
        held = self._objects[plural]
        if namespace and service:
            found = self._of_service.get((plural, namespace, service), set())
            return [held[namespace, name] for name in sorted(found)]
        return [one for one in held.values() if not namespace or one.namespace == namespace]

    def put(self, plural: str, obj: Object) -> Object:
        """Store it with the next resourceVersion."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.put_stored(plural, Stored.of(obj))
        return obj

    def put_stored(self, plural: str, stored: Stored) -> None:
        """Store it as it is."""
        before = self._objects[plural].get((stored.namespace, stored.name))
        self._objects[plural][stored.namespace, stored.name] = stored
        if stored.service:
            self._of_service[plural, stored.namespace, stored.service].add(stored.name)
        self._announce(plural, "MODIFIED" if before else "ADDED", stored)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Remove it, if it is there."""
        stored = self._objects[plural].pop((namespace, name), None)
        if stored:
            self.version += 1
            self._of_service[plural, namespace, stored.service].discard(name)
            self._announce(plural, "DELETED", stored)

    def all(self) -> Iterator[tuple[str, Stored]]:
        """Plural and object of all."""
        for plural, held in self._objects.items():
            for stored in list(held.values()):
                yield plural, stored

    def forget_history(self) -> None:
        """Whoever watches from before has to list."""
        self.version += 1
        self._history.clear()

    def since(self, plural: str, version: int) -> Iterable[Event]:
        """Events of a kind after a version."""
        return [event for event in self._history[plural] if event.version > version]

    @contextlib.contextmanager
    def watching(self, plural: str) -> Iterator[asyncio.Queue[Event]]:
        """A queue of the events of a kind from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._watches[plural].add(queue)
        try:
            yield queue
        finally:
            self._watches[plural].discard(queue)

    def _announce(self, plural: str, kind: str, stored: Stored) -> None:
        if self.quiet:
            return
        event = Event(self.version, kind, stored)
        self._history[plural].append(event)
        for queue in self._watches[plural]:
            queue.put_nowait(event)


def _text(obj: Object) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()
