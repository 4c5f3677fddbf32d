"""What `tandem.cluster.client.Api` is to the operator, over objects in memory, with faults at any request."""

import asyncio
import pickle
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from bench.scale.__main__ import NAMESPACE
from bench.scale.controllers import managed
from tandem.api.wire import Object
from tandem.cluster.client import JSON
from tandem.cluster.kinds import EVENT, OPTIONAL, Kind
from tandem.errors import AlreadyExists, Refused, Transient
from tandem.names import FIELD_MANAGER

from .clock import VirtualLoop

T = TypeVar("T")
Events = asyncio.Queue[tuple[Object | None, Object | None] | None]
"""Objects before and after each change; None: the watch is cut."""
OWNED = ("labels", "annotations", "ownerReferences")
LATENCY = 0.02
"""Seconds that a request takes at most, on its way there and on its way back."""
STALLED = 40.0
"""Seconds until a request without an answer is given up."""


def copied(obj: T) -> T:
    """A deep copy of what JSON can be of, several times as fast as `copy.deepcopy`."""
    found: T = pickle.loads(pickle.dumps(obj))
    return found


@dataclass(frozen=True)
class Write:
    """A change that was committed."""

    by: str
    began: float
    """When the request was sent."""
    verb: str
    before: Object | None
    after: Object | None
    bound: bool = True
    """Whether the request named the UID of the object that it was meant for."""

    @property
    def object(self) -> Object:
        """What was changed, as it is now, or was last."""
        found = self.after or self.before
        assert found
        return found


class Fault(Protocol):
    """What becomes of a request."""

    def __call__(self, who: str, verb: str, kind: str) -> str | None:
        """One of FAULTS, or STANDS_STILL; None: it succeeds."""


FAULTS = ("conflict", "unavailable", "refused", "lost", "unanswered", "killed before", "killed after")
STANDS_STILL = "paused before"
"""Likewise; the process goes on only where it is resumed, and its request with it."""


@dataclass
class Cluster:
    """The objects of a cluster. None is changed where it is: what changes is a copy."""

    loop: VirtualLoop
    random: Random
    collects: float = 1.0
    """Seconds from one look of the garbage collector to the next; 0: it acts at once."""
    fault: Fault = lambda *_: None
    on_write: list[Callable[[Write], None]] = field(default_factory=list)
    on_request: Callable[[str, str, str, float], None] = lambda *_: None
    """Of a write, whatever becomes of it: by whom, its verb, the kind, and when it was sent."""
    paused: dict[str, asyncio.Event] = field(default_factory=dict)
    """Processes that stand still; their requests wait, wherever they are."""
    dead: set[str] = field(default_factory=set)
    kill: Callable[[str], None] = lambda _: None
    requests: int = 0
    deaf: int = 0
    """So many further events are lost on their way to every watch."""
    version: int = 0
    """resourceVersion of the last write."""
    _objects: defaultdict[str, dict[tuple[str, str], Object]] = field(default_factory=lambda: defaultdict(dict))
    """By kind, namespace and name."""
    _watches: dict[str, list[Events]] = field(default_factory=dict)

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> Object | None:
        """Not a copy."""
        return self._objects[kind].get((namespace, name))

    def of(self, kind: str) -> list[Object]:
        """All of a kind; not copies."""
        return list(self._objects[kind].values())

    @property
    def all(self) -> list[Object]:
        """All; not copies."""
        return [obj for objects in self._objects.values() for obj in objects.values()]

    def put(
        self, obj: Object, by: str, verb: str = "update", began: float | None = None, bound: bool = True
    ) -> Object:
        """Store it with the next resourceVersion, unless nothing changed."""
        meta = obj["metadata"]
        of_kind, key = self._objects[obj["kind"]], (meta.get("namespace", ""), meta["name"])
        before = of_kind.get(key)
        if before == obj:
            return before
        self.version += 1
        if before is None:
            meta.setdefault("uid", f"uid-{self.version}")
            meta.setdefault("creationTimestamp", self.loop.stamp())
            meta.setdefault("generation", 1)
        elif before.get("spec") != obj.get("spec"):
            meta["generation"] = before["metadata"]["generation"] + 1
        meta["resourceVersion"] = str(self.version)
        of_kind[key] = obj
        self._announce(before, obj)
        self._written(Write(by, self.loop.time() if began is None else began, verb, before, obj, bound))
        return obj

    def remove(self, obj: Object, by: str, began: float | None = None) -> None:
        """Delete it for good."""
        meta = obj["metadata"]
        gone = self._objects[obj["kind"]].pop((meta.get("namespace", ""), meta["name"]))
        self.version += 1
        self._announce(gone, None)
        self._written(Write(by, self.loop.time() if began is None else began, "delete", gone, None))

    def cut_watches(self) -> None:
        """Every watch ends, as at a restart of the API server."""
        for queues in self._watches.values():
            for queue in queues:
                queue.put_nowait(None)

    def watching(self, kind: str) -> Events:
        """What becomes of the objects of a kind from now on."""
        queue: Events = asyncio.Queue()
        self._watches.setdefault(kind, []).append(queue)
        return queue

    def ended(self, kind: str, queue: Events) -> None:
        """Nobody reads that queue any more."""
        self._watches[kind].remove(queue)

    def _announce(self, before: Object | None, after: Object | None) -> None:
        kind = (after or before or {})["kind"]
        if self.deaf and kind not in ("Lease", "Event"):
            self.deaf -= 1
            return
        for queue in self._watches.get(kind, ()):
            queue.put_nowait((before, after))

    def _written(self, write: Write) -> None:
        for each in list(self.on_write):
            each(write)


class SimulatedApi:
    """The requests of one process."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self._cluster, self.who = cluster, who
        self.answered_at = 0.0

    def now(self) -> str:
        """As `Api.now`: whatever the operator's own clock shows."""
        return self._cluster.loop.stamp()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """As `Api.get`."""
        await self._ask("get", kind)
        return self._cluster.get(kind.kind, name, namespace or "")

    async def list_objects(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Object]:
        """As `Api.list_objects`."""
        return (await self.list_at(kind, namespace, selector, lambda obj: obj))[0]

    async def list_at(
        self, kind: Kind, namespace: str | None, selector: str, take: Callable[[Object], T], accept: str = JSON
    ) -> tuple[list[T], str]:
        """As `Api.list_at`."""
        await self._ask("list", kind)
        if kind in OPTIONAL:
            raise Refused(404, "404 page not found")
        cluster = self._cluster
        return [take(each) for each in cluster.of(kind.kind) if _selected(each, selector)], str(cluster.version)

    async def exists(self, kind: Kind, namespace: str | None) -> None:
        """As `Api.exists`."""
        await self._ask("list", kind)

    async def version(self) -> tuple[int, int]:
        """As `Api.version`."""
        return 1, 36

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """As `Api.events`."""
        await self._ask("list", EVENT)
        return [e for e in self._cluster.of("Event") if e["involvedObject"]["uid"] == uid]

    async def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str, accept: str = JSON
    ) -> AsyncIterator[Object]:
        """As `Api.watch`; what was written between a list and its watch is not lost, as nothing runs between them."""
        queue = self._cluster.watching(kind.kind)
        try:
            while (change := await queue.get()) is not None:
                before, after = change
                if after and _selected(after, selector):
                    yield {"type": "MODIFIED" if before else "ADDED", "object": after}
                elif before and _selected(before, selector):  # also where it has not those labels any more
                    yield {"type": "DELETED", "object": before}
        finally:
            self._cluster.ended(kind.kind, queue)

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """As `Api.apply`: our fields are as the manifest has them, and those that it left out are gone."""
        return await self._write("apply", kind, lambda began: self._applied(kind, manifest, subresource, began))

    async def replace_managers(self, kind: Kind, live: Object, entries: Sequence[Object]) -> Object:
        """As `Api.replace_managers`."""
        meta = {**live["metadata"], "managedFields": list(entries)}
        return await self._write("apply", kind, lambda began: self._replaced(kind, {**live, "metadata": meta}, began))

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """As `Api.create`."""
        return await self._write("create", kind, lambda began: self._created(kind, manifest, began))

    async def create_once(self, kind: Kind, manifest: Object) -> bool:
        """As `Api.create_once`."""
        try:
            await self.create(kind, manifest)
        except AlreadyExists:
            return False
        return True

    async def replace(self, kind: Kind, obj: Object) -> Object:
        """As `Api.replace`."""
        return await self._write("replace", kind, lambda began: self._replaced(kind, obj, began))

    async def delete(self, kind: Kind, live: Object) -> None:
        """As `Api.delete`."""
        await self._write("delete", kind, lambda began: self._deleted(kind, live, began))

    async def _write(self, verb: str, kind: Kind, commit: Callable[[float], Object]) -> Object:
        began = self._cluster.loop.time()
        fault = await self._ask(verb, kind)
        self._cluster.on_request(self.who, verb, kind.kind, began)
        done = commit(began)
        await self._answer(fault)
        return done

    async def _ask(self, verb: str, kind: Kind) -> str | None:
        """On its way to the API server, where reads end: of them an answer is as good as the object."""
        cluster = self._cluster
        cluster.requests += 1
        fault = None if kind.kind == "Lease" else cluster.fault(self.who, verb, kind.kind)
        await self._on_its_way()
        match fault:
            case "conflict":
                raise Transient("409: the object has been modified")
            case "unavailable":
                raise Transient("503: not now")
            case "refused":
                raise Refused(422, "422: an admission webhook denied the request")
            case "lost":
                await asyncio.sleep(STALLED)
                raise Transient("no answer")
            case "killed before":
                cluster.kill(self.who)
                await self._on_its_way()
            case "paused before":
                cluster.paused.setdefault(self.who, asyncio.Event())
                await self._on_its_way()
        self.answered_at = cluster.loop.time()
        return fault

    async def _answer(self, fault: str | None) -> None:
        if fault == "unanswered":
            await asyncio.sleep(STALLED)
            raise Transient("no answer")
        if fault == "killed after":
            self._cluster.kill(self.who)
        await self._on_its_way()

    async def _on_its_way(self) -> None:
        cluster = self._cluster
        await asyncio.sleep(cluster.random.random() * LATENCY)
        if self.who in cluster.paused:
            await cluster.paused[self.who].wait()
        if self.who in cluster.dead:
            raise Transient("the process is dead")

    def _applied(self, kind: Kind, manifest: Object, subresource: str, began: float) -> Object:
        meta = manifest["metadata"]
        live = self._cluster.get(kind.kind, meta["name"], meta["namespace"])
        if live or "uid" in meta:
            _check(live, {key: meta[key] for key in ("uid", "resourceVersion") if key in meta})
        if live is None and subresource:
            raise Refused(404, f"{kind.plural} {meta['name']} not found")
        obj = copied(live) if live else self._new(kind, meta)
        if subresource:
            body = {subresource: manifest[subresource]}
            ours = managed(FIELD_MANAGER, body, subresource)
        else:
            body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
            of_ours = {key: meta[key] for key in OWNED if key in meta}
            obj["metadata"] |= copied(of_ours)
            ours = managed(FIELD_MANAGER, {**body, "metadata": of_ours})
        obj |= copied(body)
        self._manage(obj, ours, body)
        if live and {**live, "metadata": {}} == {**obj, "metadata": {}} and _same_metadata(live, obj):
            return live
        return self._cluster.put(obj, self.who, "apply", began, "uid" in meta)

    def _manage(self, obj: Object, entry: Object, body: Object) -> None:
        """All that we apply is ours; of others nothing is left that we have, too."""
        others = [
            each
            for each in obj["metadata"].get("managedFields", [])
            if each["manager"] != entry["manager"] or each.get("subresource") != entry.get("subresource")
        ]
        obj["metadata"]["managedFields"] = [*others, {**entry, "time": self._cluster.loop.stamp()}]

    def _new(self, kind: Kind, meta: Mapping[str, Any]) -> Object:
        named = {"name": meta["name"], "namespace": meta["namespace"]}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": named}

    def _created(self, kind: Kind, manifest: Object, began: float) -> Object:
        meta = manifest["metadata"]
        if self._cluster.get(kind.kind, meta["name"], meta["namespace"]):
            raise AlreadyExists(f"409: {kind.plural} {meta['name']} exists")
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return self._cluster.put({**named, **copied(manifest)}, self.who, "create", began)

    def _replaced(self, kind: Kind, obj: Object, began: float) -> Object:
        meta = obj["metadata"]
        live = self._cluster.get(kind.kind, meta["name"], meta["namespace"])
        if live is None or live["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Transient("409: the object has been modified")
        return self._cluster.put(copied(obj), self.who, "replace", began)

    def _deleted(self, kind: Kind, live: Object, began: float) -> Object:
        meta = live["metadata"]
        found = self._cluster.get(kind.kind, meta["name"], meta["namespace"])
        if found is None:
            return {}
        _check(found, {key: meta[key] for key in ("uid", "resourceVersion")})
        self._cluster.remove(found, self.who, began)
        return {}


def _check(live: Object | None, seen: Object) -> None:
    """Raises Transient where an object is not as it was seen any more."""
    for key, value in seen.items():
        if live is None or live["metadata"][key] != value:
            raise Transient(f"409: Precondition failed: {key}")


def _same_metadata(one: Object, other: Object) -> bool:
    """But for when fields were applied."""
    left, right = ({**each["metadata"], "managedFields": None} for each in (one, other))
    fields = [[{**entry, "time": ""} for entry in each["metadata"].get("managedFields", [])] for each in (one, other)]
    return left == right and fields[0] == fields[1]


def _selected(obj: Object, selector: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    for part in filter(None, selector.split(",")):
        key, _, value = part.partition("=")
        if key not in labels or (value and labels[key] != value):
            return False
    return True
