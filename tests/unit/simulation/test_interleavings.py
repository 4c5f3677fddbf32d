"""Users, faults and operators in any order: nothing wrong is written on the way, and all come to the same end.

`make simulate MINUTES=60` looks for new ones.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from support.simulation.api import FAULTS, Cluster, copied
from support.simulation.clock import VirtualLoop
from support.simulation.judge import Judge, end_state
from support.simulation.process import Processes, prepare
from tandem.api import KIND
from tandem.api.wire import Object
from tandem.cluster.manifests import owner_uid
from tandem.settings import load_settings

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
SETTLED, LOOK, CALM = 900.0, 15.0, 70.0
"""Seconds in which all comes to its end, the slowest retry and two comparisons included; between two looks whether it
has; in which nothing is written then, a comparison included."""


class World:
    """A cluster with operators, of one seed."""

    def __init__(self, seed: int) -> None:
        self.loop, self.random, self.patch = VirtualLoop(), Random(seed), pytest.MonkeyPatch()
        prepare(self.loop, self.random, self.patch)
        self.cluster = Cluster(self.loop, self.random)
        self.judge = Judge(self.cluster)
        self.processes = Processes(self.cluster, load_settings())
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

    def settle(self, wanted: dict[str, Any]) -> None:
        """Until all is as `wanted`, and stays so. Raises AssertionError."""
        for _ in range(round(SETTLED / LOOK)):
            self.wait(LOOK)
            if end_state(self.cluster, NAME) == wanted:
                break
        assert end_state(self.cluster, NAME) == wanted
        writes = self.judge.writes
        self.wait(CALM)
        assert (self.judge.writes, end_state(self.cluster, NAME)) == (writes, wanted)

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
        world.wait(SETTLED)
        return end_state(world.cluster, NAME)
    finally:
        world.close()


class Interleavings(RuleBasedStateMachine):
    """What may happen, in any order."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        """A cluster with a service that is on its way."""
        self.world = World(seed)
        self.cluster, self.processes = self.world.cluster, self.world.processes
        self.faults: list[tuple[tuple[str, ...], int, str]] = []
        self.cluster.fault = self.fault
        self.spec: dict[str, Any] = copied(SERVICE["spec"])
        self.world.create(self.spec)

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

    @rule(seconds=st.sampled_from(WAITS))
    def wait(self, seconds: float) -> None:
        """Time goes on."""
        self.world.wait(seconds)

    @precondition(lambda self: self.world.service)
    @rule(change=st.sampled_from(EDITS))
    def edit(self, change: dict[str, Any]) -> None:
        """The user edits the spec."""
        self.spec = {**self.spec, **change}
        service = copied(self.world.service)
        assert service
        self.cluster.put({**service, "spec": self.spec}, "user")

    @precondition(lambda self: self.world.service and "deletionTimestamp" not in self.world.service["metadata"])
    @rule(foreground=st.booleans())
    def delete(self, foreground: bool) -> None:
        """The user deletes the service."""
        service = copied(self.world.service)
        assert service
        if not foreground:
            self.cluster.remove(service, "user")
            return
        service["metadata"]["deletionTimestamp"] = self.world.loop.stamp()
        self.cluster.put(service, "user")

    @precondition(lambda self: not self.world.service)
    @rule()
    def create(self) -> None:
        """The user creates the service again."""
        self.world.create(self.spec)

    def _children(self) -> list[Object]:
        service = self.world.service
        uid = service["metadata"]["uid"] if service else ""
        owned = [obj for obj in self.cluster.objects.values() if owner_uid(obj) == uid]
        return sorted(owned, key=lambda obj: (obj["kind"], obj["metadata"]["name"]))

    @precondition(lambda self: self._children())
    @rule(which=st.integers(0, 7), deletes=st.booleans())
    def drift(self, which: int, deletes: bool) -> None:
        """Somebody deletes a child, or changes it."""
        children = self._children()
        child = copied(children[which % len(children)])
        if deletes:
            self.cluster.remove(child, "user")
            return
        if child["kind"] == "Deployment":
            child["spec"]["replicas"] = 7
        child["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "drifted"
        self.cluster.put(child, "user")

    @rule(which=st.sampled_from(TAKEN))
    def take_a_name(self, which: tuple[str, str]) -> None:
        """Somebody else makes an object of a child's name, where there is none."""
        kind, name = which
        if self.cluster.get(kind, name) is None:
            spec = {"replicas": 0, "template": {"metadata": {}, "spec": {}}} if kind == "Deployment" else {}
            meta = {"name": name, "namespace": NAMESPACE}
            made = self.cluster.put({"kind": kind, "apiVersion": "v1", "metadata": meta, "spec": spec}, "somebody")
            self.world.judge.foreign.add(made["metadata"]["uid"])

    @rule()
    def give_names_back(self) -> None:
        """They delete what they made."""
        for obj in list(self.cluster.objects.values()):
            if obj["metadata"]["uid"] in self.world.judge.foreign:
                self.cluster.remove(obj, "somebody")

    @rule(of=st.sampled_from((WRITES, READS)), after=st.integers(0, 12), what=st.sampled_from(FAULTS))
    def fail_a_request(self, of: tuple[str, ...], after: int, what: str) -> None:
        """One of the next requests comes to grief."""
        self.faults.append((of, after, what))

    @precondition(lambda self: len(self.processes.running) < 2)
    @rule()
    def start(self) -> None:
        """Kubernetes starts an operator, or a second one."""
        self.processes.start()

    @precondition(lambda self: self.processes.running)
    @rule()
    def kill(self) -> None:
        """The oldest operator is killed."""
        self.processes.kill(self.processes.running[0])

    @precondition(lambda self: self.processes.running)
    @rule()
    def pause(self) -> None:
        """The oldest operator stands still."""
        self.processes.pause(self.processes.running[0])

    @rule()
    def resume(self) -> None:
        """All go on."""
        self.processes.resume()

    @rule(events=st.integers(1, 4))
    def deafen(self, events: int) -> None:
        """Events are lost."""
        self.cluster.deaf = events

    @rule()
    def cut(self) -> None:
        """All watches end."""
        self.cluster.cut_watches()

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
        self.give_names_back()
        self.processes.resume()
        self.cluster.deaf = 0
        if not self.processes.running:
            self.processes.start()
        service = self.world.service
        if service and self.spec["runtime"] == REFUSED["runtime"]:  # with such a spec what serves stays as it was
            self.spec = {**self.spec, **ACCEPTED}
            self.cluster.put({**copied(service), "spec": self.spec}, "user")
        leaves = not service or "deletionTimestamp" in service["metadata"]
        self.world.settle(reference("" if leaves else json.dumps(self.spec)))
        assert self.world.judge.faults == []
        assert self.processes.failures() == []


BUDGET = settings(
    max_examples=int(os.environ.get("SIMULATED_INTERLEAVINGS", "400")),
    stateful_step_count=12,
    deadline=None,
    derandomize="SIMULATED_INTERLEAVINGS" not in os.environ,
    database=None,
    phases=[Phase(int(p)) if p.isdigit() else Phase[p] for p in os.environ.get("SIMULATED_PHASES", "generate,shrink").split(",")],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("CRITICAL", logger="tandem")
    yield


def test_all_come_to_the_same_end(quiet: None) -> None:
    run_state_machine_as_test(Interleavings, settings=BUDGET)
