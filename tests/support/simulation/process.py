"""Operator processes in the simulation: started, killed and paused at any request."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import tandem.cluster.events
import tandem.cluster.lease
import tandem.cluster.observe
import tandem.cluster.reflector
import tandem.process.health
import tandem.process.operator
import tandem.process.reconcile
import tandem.process.reports
import tandem.process.resync
import tandem.process.reverts
import tandem.process.watches
from tandem.cluster.kinds import SERVICES_KIND
from tandem.cluster.reflector import Reflector
from tandem.process.operator import Operator
from tandem.process.reconcile import Key
from tandem.process.watches import Sighting, sight
from tandem.settings import Settings

from . import controllers
from .api import Cluster, SimulatedApi
from .clock import VirtualLoop, install

RESTARTED = 2.0
"""Seconds from the end of an operator to the next one's beginning."""
CLOCKED = [
    tandem.cluster.events,
    tandem.cluster.lease,
    tandem.cluster.observe,
    tandem.cluster.reflector,
    tandem.process.health,
    tandem.process.operator,
    tandem.process.reconcile,
    tandem.process.reports,
    tandem.process.resync,
    tandem.process.reverts,
    tandem.process.watches,
]


class ServiceWatch(Reflector[Sighting]):
    """In the place of kopf's thread (`tandem.process.events.EventSource`), which needs real time and sockets."""

    alive, watching = True, True
    scopes: Sequence[str | None] = (None,)

    def __init__(self, api: Any, on_event: Callable[[Key], None]) -> None:
        super().__init__(api, SERVICES_KIND, None, "", lambda obj: sight(SERVICES_KIND, obj))
        self._on_event = on_event

    @property
    def lists(self) -> bool:
        """Whether its first list goes on."""
        return not (self.listed.is_set() or self.problem)

    def changed(self, before: Sighting | None, now: Sighting | None) -> None:
        """Pass the key on."""
        seen = now or before
        if seen and seen.key:
            self._on_event(seen.key)

    async def run(self, scopes: Sequence[str | None] = ()) -> None:
        """For ever."""
        await super().run()

    async def stop(self) -> None:
        """Nothing is left of it."""


class Processes:
    """The operators of a cluster, and what it has of Kubernetes."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster, self._settings = cluster, settings
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._count = 0
        cluster.kill = self.kill
        self._kubernetes = cluster.loop.create_task(controllers.run(cluster))

    @property
    def running(self) -> list[str]:
        """Names of the operators that run, or are paused; the oldest first."""
        return [who for who in self._tasks if who not in self.cluster.dead]

    def start(self) -> str:
        """Another operator."""
        self._count += 1
        who = f"operator-{self._count}"
        self._tasks[who] = self.cluster.loop.create_task(self._run(who))
        return who

    def kill(self, who: str) -> None:
        """As by SIGKILL: nothing that it does from now on has an effect. Kubernetes starts another."""
        if who in self.cluster.dead:
            return
        self.cluster.dead.add(who)
        self.cluster.loop.call_later(RESTARTED, self.start)
        if event := self.cluster.paused.pop(who, None):
            event.set()
        self._tasks[who].cancel()

    def pause(self, who: str) -> None:
        """As by SIGSTOP, but for what waits for time alone."""
        self.cluster.paused.setdefault(who, asyncio.Event())

    def resume(self) -> None:
        """All that were paused."""
        for event in self.cluster.paused.values():
            event.set()
        self.cluster.paused.clear()

    def failures(self) -> list[BaseException]:
        """Why operators ended that were not killed."""
        ended = [task for who, task in self._tasks.items() if task.done() and who not in self.cluster.dead]
        return [task.exception() or RuntimeError("it ended") for task in ended]

    async def stop(self) -> None:
        """End all."""
        self.resume()
        for who, task in self._tasks.items():
            self.cluster.dead.add(who)
            task.cancel()
        self._kubernetes.cancel()
        await asyncio.gather(self._kubernetes, *self._tasks.values(), return_exceptions=True)

    async def _run(self, who: str) -> None:
        api: Any = SimulatedApi(self.cluster, who)
        # Nothing runs between this and the Operator's taking them.
        operator: Any = tandem.process.operator
        operator.identity = lambda: ("tandem-system", who)
        operator.EventSource = lambda on_event: ServiceWatch(api, on_event)
        with contextlib.suppress(asyncio.CancelledError):
            await Operator(api, self._settings).run("", 0)


def prepare(loop: VirtualLoop, random: Random, patch: pytest.MonkeyPatch, skew: float) -> None:
    """Give the operator's modules the loop's time, `random`, and no sockets. `skew`: see `install`."""
    install(loop, CLOCKED, patch, skew)

    async def no_probes(*_: Any) -> Any:
        return SimpleNamespace(close=_nothing)

    operator: Any = tandem.process.operator
    for name in ("identity", "EventSource"):
        patch.setattr(operator, name, getattr(operator, name))
    patch.setattr(operator, "serve", no_probes)
    patch.setattr(operator, "gc", SimpleNamespace(set_threshold=_quiet, freeze=_quiet))
    patch.setattr(operator, "SAMPLE_SECONDS", 1e6)
    for module in (tandem.process.operator, tandem.process.resync, tandem.cluster.reflector):
        patch.setattr(module, "random", random)
    patch.setattr("tandem.process.workqueue.random", random)


async def _nothing() -> None:
    return


def _quiet(*_: int) -> None:
    """The garbage collector is that of the tests."""
