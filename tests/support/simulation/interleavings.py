"""Users, faults and operators in any order: nothing wrong is written on the way, and all come to the same end."""

import json
from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bench.scale.__main__ import NAME, SERVICE
from tandem import names
from tandem.api.wire import Object
from tandem.cluster.manifests import label, owner_uid

from .api import FAULTS, STANDS_STILL, Write, copied
from .changes import ACCEPTED, CHANGES, REFUSED, TAKEN, Change, take
from .world import COMPARED, OTHER, SELDOM, World, reference

WAITS = (0.01, 0.05, 0.2, 1.0, 4.0, 15.0, 40.0)
WRITES, READS = ("apply", "create", "delete", "replace"), ("get", "list")
TAKEN_OVER, WORKED_AT, BEGINS = 20.0, 5.0, 0.3
"""Seconds until another operator has the Lease of one that stands still; until it has acted on a change; from a
Lease's taking to a leader's first writes."""
SKEWS = 0.0, 120.0, -120.0
"""Seconds by which the operators' clock is ahead of the API server's."""
Faulty = tuple[tuple[str, ...], int, str]
"""Which requests fail: of these verbs, after so many that do not, and how."""
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
        other=st.sampled_from((False, False, True)),
        compares=st.sampled_from((COMPARED, SELDOM)),
        then=WAITED,
    )
    def begin(
        self, seed: int, collects: float, history: int | None, taken: bool, other: bool, compares: float, then: float
    ) -> None:
        """A cluster with a service that is on its way, of which a name may be somebody else's, and perhaps with an
        `other`. The operators' clock may be wrong."""
        self.world = World(seed, collects, compares, SKEWS[seed % len(SKEWS)])
        self.compares = compares == COMPARED
        self.cluster, self.processes = self.world.cluster, self.world.processes
        self.faults: list[Faulty] = []
        self.cluster.fault = self.fault
        self.spec: dict[str, Any] = copied(SERVICE["spec"])
        if history is not None:
            self.spec["rollout"] = {"revisionHistoryLimit": history}
        if taken:
            take(*TAKEN[seed % len(TAKEN)])(self)
        self.world.create(self.spec)
        self.others = {OTHER: copied(SERVICE["spec"])} if other else {}
        for name, spec in self.others.items():
            self.world.create(spec, name)
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
        """Somebody changes something, often where nothing else goes on, and its event is lost: of those that compare
        their watches."""
        self.world.wait(before)
        self.cluster.deaf = self.compares
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
        service = self.world.service
        if service and self.spec["runtime"] == REFUSED["runtime"]:  # with such a spec what serves stays as it was
            self.spec = {**self.spec, **ACCEPTED}
        leaves = not service or "deletionTimestamp" in service["metadata"]
        wanted = {NAME: reference("" if leaves else json.dumps(self.spec))}
        wanted |= {name: reference(json.dumps(spec), name) for name, spec in self.others.items()}
        for obj in self.cluster.all:
            if self.is_left(obj, wanted[NAME]["children"]):
                self.cluster.remove(obj, "somebody")
        if service and service["spec"] != self.spec:
            self.world.edit(self.spec)
        self.world.settled(wanted)
        assert self.world.judge.faults == []
        assert self.processes.failures() == []

    def is_left(self, obj: Object, wanted: Collection[str]) -> bool:
        """Whether somebody has to remove it at the end: what is another's, and what lost its label or its owner,
        unless it is wanted and has one of the two yet."""
        service, labelled = self.world.service, label(obj, names.LABEL_SERVICE) == NAME
        owned = bool(service and owner_uid(obj) == service["metadata"]["uid"])
        ownerless = obj["metadata"].get("ownerReferences") == []
        mends = (owned or labelled) and f"{obj['kind']}/{obj['metadata']['name']}" in wanted
        foreign = obj["metadata"]["uid"] in self.world.judge.foreign
        return foreign or ((ownerless or (owned and not labelled)) and not mends)
