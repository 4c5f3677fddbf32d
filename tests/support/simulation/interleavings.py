"""Users, faults and operators in any order: nothing wrong is written on the way, and all come to the same end."""

import asyncio
import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from tandem.api import KIND
from tandem.api.wire import Object
from tandem.cluster.manifests import owner_uid
from tandem.settings import load_settings

from .api import FAULTS, STANDS_STILL, Cluster, Write, copied
from .clock import VirtualLoop
from .judge import Judge, end_state
from .process import Processes, prepare

REFUSED: dict[str, Any] = {"runtime": {"mode": "BLS", "profile": "no-such"}}
ACCEPTED: dict[str, Any] = {"runtime": {"mode": "BLS", "profile": "reference"}}
EDITS: list[dict[str, Any]] = [
    {"replicas": 1},
    {"replicas": 3},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 2}},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 4}},
    {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 6}},
    {"serving": {"access": {"from": [{"podSelector": {}}]}}},
    {"rollout": {"strategy": "Replace"}},
    {"rollout": {"revisionHistoryLimit": 0}},
    REFUSED,
    ACCEPTED,
]
WAITS = (0.01, 0.05, 0.2, 1.0, 4.0, 15.0, 40.0)
WRITES, READS = ("apply", "create", "delete", "replace"), ("get", "list")
TAKEN = ("Service", f"{NAME}-triton"), ("ServiceAccount", f"{NAME}-server"), ("Deployment", f"{NAME}-server")
COPIED = "ConfigMap", "NetworkPolicy", "Service"
"""Kinds of children that make no pods."""
TAKEN_OVER, WORKED_AT, BEGINS = 20.0, 5.0, 0.3
"""Seconds until another operator has the Lease of one that stands still; until it has acted on a change; from a
Lease's taking to a leader's first writes."""
COMPARED, SETTLED, CALM = 20.0, 900.0, 30.0
"""Seconds from one comparison of the watches to the next; in which all comes to its end, the slowest retry included;
in which nothing is written then."""
SETTINGS = load_settings().model_copy(update={"resync_seconds": COMPARED})


class World:
    """A cluster with operators, of one seed."""

    def __init__(self, seed: int, collects: float = 1.0) -> None:
        self.loop, self.random, self.patch = VirtualLoop(), Random(seed), pytest.MonkeyPatch()
        prepare(self.loop, self.random, self.patch)
        self.cluster = Cluster(self.loop, self.random, collects)
        self.judge = Judge(self.cluster)
        self.processes = Processes(self.cluster, SETTINGS)
        self.processes.start()

    @property
    def service(self) -> Object | None:
        """As it is."""
        return self.cluster.get(KIND, NAME)

    def create(self, spec: dict[str, Any]) -> None:
        """As by `kubectl apply`."""
        meta = {"name": NAME, "namespace": NAMESPACE}
        self.cluster.put({**copied(SERVICE), "metadata": meta, "spec": spec}, "user")

    def wait(self, seconds: float) -> None:
        """Let it go on."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def settled(self, wanted: dict[str, Any] | None = None) -> dict[str, Any]:
        """How it is once nothing is written any more, and all is as `wanted`. Raises AssertionError."""
        for _ in range(round(SETTLED / CALM)):
            writes = self.judge.writes
            self.wait(CALM)
            found = end_state(self.cluster, NAME)
            if self.judge.writes == writes and wanted in (None, found):
                return found
        assert end_state(self.cluster, NAME) == wanted
        raise AssertionError("it is written on and on")

    def close(self) -> None:
        """End it."""
        self.loop.run_until_complete(self.processes.stop())
        self.loop.close()
        self.patch.undo()


@cache
def reference(spec: str) -> dict[str, Any]:
    """The end state of a service with that spec to which nothing happened; empty: of none."""
    world = World(0)
    try:
        if spec:
            world.create(json.loads(spec))
        return world.settled()
    finally:
        world.close()


Change = Callable[["Interleavings"], None]
Faulty = tuple[tuple[str, ...], int, str]
"""Which requests fail: of these verbs, after so many that do not, and how."""


def edit(spec: dict[str, Any]) -> Change:
    """The user edits the spec."""

    def change(at: "Interleavings") -> None:
        at.spec = {**at.spec, **spec}
        if service := at.world.service:
            at.cluster.put({**copied(service), "spec": at.spec}, "user")

    return _called(change, f"edit({spec})")


def delete(foreground: bool) -> Change:
    """The user deletes the service, and creates it again where it is gone."""

    def change(at: "Interleavings") -> None:
        service = at.world.service
        if service is None:
            at.world.create(at.spec)
        elif not foreground:
            at.cluster.remove(service, "user")
        elif "deletionTimestamp" not in service["metadata"]:
            meta = {**service["metadata"], "deletionTimestamp": at.world.loop.stamp()}
            at.cluster.put({**service, "metadata": meta}, "user")

    return _called(change, f"delete(foreground={foreground})")


def let_go(again: bool) -> Change:
    """The user deletes the service and not its children (`kubectl delete --cascade=orphan`); or makes it `again`."""

    def change(at: "Interleavings") -> None:
        for child in at.children():
            at.cluster.put({**child, "metadata": {**child["metadata"], "ownerReferences": []}}, "kubernetes")
        if service := at.world.service:
            at.cluster.remove(service, "user")
        if again:
            at.world.create(at.spec)

    return _called(change, f"let_go(again={again})")


def recreate() -> Change:
    """The user deletes the service and creates it again, while its children are still there."""

    def change(at: "Interleavings") -> None:
        if service := at.world.service:
            at.cluster.remove(service, "user")
        at.world.create(at.spec)

    return _called(change, "recreate()")


def drift(which: int, deletes: bool) -> Change:
    """Somebody deletes a child, or changes it."""

    def change(at: "Interleavings") -> None:
        if not (children := at.children()):
            return
        child = copied(children[which % len(children)])
        if deletes:
            at.cluster.remove(child, "user")
            return
        if child["kind"] == "Deployment":
            child["spec"]["replicas"] = 7
        child["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "drifted"
        at.cluster.put(child, "user")

    return _called(change, f"drift({which}, deletes={deletes})")


def take(kind: str, name: str) -> Change:
    """Somebody else makes an object of a child's name, in its place where there is one."""

    def change(at: "Interleavings") -> None:
        if there := at.cluster.get(kind, name):
            at.cluster.remove(there, "user")
        spec = {"replicas": 0, "template": {"metadata": {}, "spec": {}}} if kind == "Deployment" else {}
        meta = {"name": name, "namespace": NAMESPACE}
        made = at.cluster.put({"kind": kind, "apiVersion": "v1", "metadata": meta, "spec": spec}, "somebody")
        at.world.judge.foreign.add(made["metadata"]["uid"])

    return _called(change, f"take({kind}/{name})")


def copy(which: int) -> Change:
    """Somebody else copies a child, labels and all, as by `kubectl get -o yaml` with another name in it."""

    def change(at: "Interleavings") -> None:
        children = [child for child in at.children() if child["kind"] in COPIED]
        if not children:
            return
        child = copied(children[which % len(children)])
        name = f"copy-{at.cluster.version}"
        meta = {"name": name, "namespace": NAMESPACE, "labels": child["metadata"].get("labels", {})}
        made = at.cluster.put({**child, "metadata": meta}, "somebody")
        at.world.judge.foreign.add(made["metadata"]["uid"])

    return _called(change, f"copy({which})")


def _called(change: Change, name: str) -> Change:
    """With a name for the story that is printed."""
    change.__qualname__ = name
    return change


CHANGES = st.one_of(
    st.sampled_from(EDITS).map(edit),
    st.booleans().map(delete),
    st.builds(recreate),
    st.booleans().map(let_go),
    st.builds(drift, st.integers(0, 7), st.booleans()),
    st.sampled_from(TAKEN).map(lambda taken: take(*taken)),
    st.integers(0, 7).map(copy),
)
SKIPPED = st.sampled_from((0, 0, 1, 2, 3, 5, 8))
FAULTY = st.tuples(st.sampled_from((WRITES, READS)), SKIPPED, st.sampled_from(FAULTS))
WAITED = st.sampled_from(WAITS)


class Interleavings(RuleBasedStateMachine):
    """What may happen, in any order."""

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        collects=st.sampled_from((1.0, 20.0, 0.0, 1.0, 20.0)),
        history=st.sampled_from((None, 0)),
        taken=st.booleans(),
        then=WAITED,
    )
    def begin(self, seed: int, collects: float, history: int | None, taken: bool, then: float) -> None:
        """A cluster with a service that is on its way; of which a name may be somebody else's."""
        self.world = World(seed, collects)
        self.cluster, self.processes = self.world.cluster, self.world.processes
        self.faults: list[Faulty] = []
        self.cluster.fault = self.fault
        self.spec: dict[str, Any] = copied(SERVICE["spec"])
        if history is not None:
            self.spec["rollout"] = {"revisionHistoryLimit": history}
        if taken:
            take(*TAKEN[seed % len(TAKEN)])(self)
        self.world.create(self.spec)
        self.world.wait(then)

    def fault(self, who: str, verb: str, kind: str) -> str | None:
        """The first that is due for a request."""
        for index, (verbs, after, what) in enumerate(self.faults):
            if verb not in verbs:
                continue
            if after == 0:
                del self.faults[index]
                return what
            self.faults[index] = verbs, after - 1, what
        return None

    def children(self) -> list[Object]:
        """The service's, in a fixed order."""
        uid = service["metadata"]["uid"] if (service := self.world.service) else None
        owned = [obj for obj in self.cluster.all if owner_uid(obj) == uid]
        return sorted(owned, key=lambda obj: (obj["kind"], obj["metadata"]["name"]))

    @rule(change=CHANGES, after=st.sampled_from((0.02, 0.04, 0.08)), also=CHANGES, then=WAITED)
    def change_twice(self, change: Change, after: float, also: Change, then: float) -> None:
        """Something changes while what changed before is worked at."""
        change(self)
        self.world.wait(after)
        also(self)
        self.world.wait(then)

    @rule(change=CHANGES, fault=st.none() | FAULTY, then=WAITED)
    def change(self, change: Change, fault: Faulty | None, then: float) -> None:
        """Somebody changes something, and a request of what follows fails."""
        if fault:
            self.faults.append(fault)
        change(self)
        self.world.wait(then)

    @rule(change=CHANGES, before=st.sampled_from((0.2, 40.0)), then=WAITED)
    def change_unheard(self, change: Change, before: float, then: float) -> None:
        """Somebody changes something, often where nothing else goes on, and its event is lost."""
        self.world.wait(before)
        self.cluster.deaf = True
        change(self)
        self.cluster.deaf = False
        self.world.wait(then)

    @rule(then=WAITED)
    def give_names_back(self, then: float) -> None:
        """Others delete what they made, or all watches end where there is nothing."""
        found = [obj for obj in self.cluster.all if obj["metadata"]["uid"] in self.world.judge.foreign]
        for obj in found:
            self.cluster.remove(obj, "somebody")
        if not found:
            self.cluster.cut_watches()
        self.world.wait(then)

    @precondition(lambda self: self.processes.running)
    @rule(then=WAITED)
    def kill(self, then: float) -> None:
        """The oldest operator is killed."""
        self.processes.kill(self.processes.running[0])
        self.world.wait(then)

    @rule(change=CHANGES, before=WAITED, paused=st.sampled_from((0.2, 4.0, 20.0, 40.0)), then=WAITED)
    def pause(self, change: Change, before: float, paused: float, then: float) -> None:
        """The leader stands still in the midst of something, while another operator runs."""
        if len(self.processes.running) < 2:
            self.processes.start()
        change(self)
        self.world.wait(before)
        self.processes.pause(self.world.judge.leader or self.processes.running[0])
        self.world.wait(paused)
        self.processes.resume()
        self.world.wait(then)

    @rule(change=CHANGES, after=st.integers(0, 3), meanwhile=CHANGES, then=WAITED)
    def pause_at_a_write(self, change: Change, after: int, meanwhile: Change, then: float) -> None:
        """The leader stands still with a write on its way, past its Lease; another one does its work meanwhile."""
        if len(self.processes.running) < 2:
            self.processes.start()
        self.faults.append((WRITES, after, STANDS_STILL))
        change(self)
        self.world.wait(TAKEN_OVER)
        meanwhile(self)
        self.world.wait(WORKED_AT)
        self.processes.resume()
        self.world.wait(then)

    @rule(change=CHANGES, asked=st.sampled_from((WRITES, READS)), after=st.integers(0, 30), then=WAITED)
    def pause_until_succeeded(self, change: Change, asked: tuple[str, ...], after: int, then: float) -> None:
        """The leader stands still in the midst of a request, and goes on just when another one begins to work."""
        if len(self.processes.running) < 2:
            self.processes.start()
        self.faults.append((asked, after, STANDS_STILL))
        self.cluster.on_write.append(self.resume_at_succession)
        change(self)
        self.world.wait(TAKEN_OVER + then)
        self.cluster.on_write.remove(self.resume_at_succession)

    def resume_at_succession(self, write: Write) -> None:
        """Where another one takes the Lease of one that stands still."""
        lease, paused = write.object, self.cluster.paused
        if paused and lease["kind"] == "Lease" and lease["spec"]["holderIdentity"] not in paused:
            self.world.loop.call_later(self.world.random.random() * BEGINS, self.processes.resume)

    def teardown(self) -> None:
        """All faults end; one operator brings it to its end."""
        if not hasattr(self, "world"):
            return
        try:
            self._end()
        finally:
            self.world.close()

    def _end(self) -> None:
        self.faults.clear()
        self.processes.resume()
        for obj in self.cluster.all:
            foreign = obj["metadata"]["uid"] in self.world.judge.foreign
            if foreign or obj["metadata"].get("ownerReferences") == []:
                self.cluster.remove(obj, "somebody")
        service = self.world.service
        if service and self.spec["runtime"] == REFUSED["runtime"]:  # with such a spec what serves stays as it was
            self.spec = {**self.spec, **ACCEPTED}
            self.cluster.put({**copied(service), "spec": self.spec}, "user")
        leaves = not service or "deletionTimestamp" in service["metadata"]
        self.world.settled(reference("" if leaves else json.dumps(self.spec)))
        assert self.world.judge.faults == []
        assert self.processes.failures() == []
