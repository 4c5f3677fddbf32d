"""A cluster with operators, and how it is once all has come to its end."""

import asyncio
import json
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import pytest

from bench.scale.__main__ import NAME, NAMESPACE, SERVICE
from tandem.api import KIND
from tandem.api.wire import Object
from tandem.settings import load_settings

from .api import Cluster, copied
from .clock import VirtualLoop
from .judge import Judge, end_state
from .process import Processes, prepare

OTHER = "svc-00001"
"""A second service; the faults and edits are of the first."""
COMPARED, SELDOM = 20.0, 1e6
"""Seconds from one comparison of the watches to the next: soon, or never, which shows events that queue no
reconcile."""
SETTLED, CALM = 900.0, 30.0
"""Seconds in which all comes to its end, the slowest retry included; in which nothing is written then."""
SETTINGS = load_settings()
States = dict[str, dict[str, Any]]
"""End states of services, by name."""


class World:
    """A cluster with operators, of one seed. `skew`: seconds by which their clock is ahead of the API server's."""

    def __init__(self, seed: int, collects: float = 1.0, compares: float = COMPARED, skew: float = 0) -> None:
        self.loop, self.random, self.patch = VirtualLoop(), Random(seed), pytest.MonkeyPatch()
        prepare(self.loop, self.random, self.patch, skew)
        self.cluster = Cluster(self.loop, self.random, collects)
        self.judge = Judge(self.cluster)
        self.processes = Processes(self.cluster, SETTINGS.model_copy(update={"resync_seconds": compares}))
        self.processes.start()

    @property
    def service(self) -> Object | None:
        """As it is."""
        return self.cluster.get(KIND, NAME)

    def create(self, spec: dict[str, Any], name: str = NAME) -> None:
        """As by `kubectl apply`."""
        meta = {"name": name, "namespace": NAMESPACE}
        self.cluster.put({**copied(SERVICE), "metadata": meta, "spec": spec}, "user")

    def edit(self, spec: dict[str, Any]) -> None:
        """As by `kubectl replace`."""
        assert self.service
        self.cluster.put({**copied(self.service), "spec": spec}, "user")

    def wait(self, seconds: float) -> None:
        """Let it go on."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def settled(self, wanted: States | None = None, of: Iterable[str] = (NAME,)) -> States:
        """How the services `of` are once nothing is written any more, or those of `wanted` once they are so too.
        Raises AssertionError."""
        for _ in range(round(SETTLED / CALM)):
            writes = self.judge.writes
            self.wait(CALM)
            found = {name: end_state(self.cluster, name) for name in wanted or of}
            if self.judge.writes == writes and wanted in (None, found):
                return found
        assert found == wanted
        raise AssertionError("it is written on and on")

    def close(self) -> None:
        """End it."""
        self.loop.run_until_complete(self.processes.stop())
        self.loop.close()
        self.patch.undo()


@cache
def reference(spec: str, name: str = NAME) -> dict[str, Any]:
    """The end state of a service with that spec to which nothing happened; empty: of none."""
    world = World(0)
    try:
        if spec:
            world.create(json.loads(spec), name)
        return world.settled(of=(name,))[name]
    finally:
        world.close()
