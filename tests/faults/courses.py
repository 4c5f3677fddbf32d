"""How a plan goes: what is done when, around a scenario and its fault."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .injected import Kill, Meanwhile, Stale
from .proxy import Fault
from .requests import Request
from .scenarios import Scenario, Step
from .world import PATIENCE_SECONDS, QUIET_SECONDS, World

Course = Callable[[World, Scenario], Awaitable[Fault | None]]
"""Returns once the fault is over; what is left is for the operator to do."""


async def act(world: World, scenario: Scenario) -> None:
    """What the user does."""
    for step in scenario.act:
        await step(world)


async def over(world: World, fault: Fault) -> None:
    """Wait until a fault has struck, and is over."""
    await world.until("the fault to strike", lambda: fault.struck)
    seconds = PATIENCE_SECONDS + getattr(fault, "seconds", 0.0)
    await world.until("the fault to be over", lambda: getattr(fault, "over", True), seconds)


@dataclass(frozen=True)
class During:
    """The fault is there when the user acts."""

    fault: Callable[[], Fault]

    async def __call__(self, world: World, scenario: Scenario) -> Fault:
        """See the class."""
        fault = self.fault()
        world.proxy.arm(fault)
        world.proxy.cut(lambda request: bool(getattr(fault, "concerns", lambda _: False)(request)))
        await act(world, scenario)
        await over(world, fault)
        return fault


@dataclass(frozen=True)
class Down:
    """The operator is away while the user acts; `fault` meets it when it comes back."""

    fault: Callable[[], Fault] | None = None
    settle: bool = True
    """Whether what Kubernetes does by itself is over by then."""

    async def __call__(self, world: World, scenario: Scenario) -> Fault | None:
        """See the class."""
        world.operator.stay_down()
        await act(world, scenario)
        if self.settle:
            await world.settled()
        fault = self.fault() if self.fault else None
        if fault:
            world.proxy.arm(fault)
        world.operator.start()
        if fault:
            await over(world, fault)
        return fault


@dataclass(frozen=True)
class At:
    """Somebody does something just before the API server has the `number`-th request of a kind."""

    where: str
    number: int
    step: Step

    async def __call__(self, world: World, scenario: Scenario) -> Fault:
        """See the class."""
        fault = Meanwhile(self.where, self.number)
        world.proxy.arm(fault)
        await act(world, scenario)
        await world.interrupted(fault)
        await self.step(world)
        fault.resumed.set()
        return fault


@dataclass(frozen=True)
class Perturbed:
    """All is well, and somebody does something; the operator is away meanwhile, or is not."""

    step: Step
    down: bool = False

    async def __call__(self, world: World, scenario: Scenario) -> Fault | None:
        """See the class."""
        if self.down:
            world.operator.stay_down()
        await self.step(world)
        if self.down:
            await world.settled()
            world.operator.start()
        return None


@dataclass(frozen=True)
class Paused:
    """The leader stands still from a request on until its Lease is past and another operator has done the work; then
    it goes on, and the request that was under way arrives."""

    where: str

    async def __call__(self, world: World, scenario: Scenario) -> Fault:
        """See the class."""
        leader, fault = leading(world), Meanwhile(self.where, 1)
        world.proxies[leader].arm(fault)
        await act(world, scenario)
        await world.interrupted(fault)
        world.operators[leader].signal(signal.SIGSTOP)
        try:
            await world.until("another leader", lambda: leading(world) != leader)
            await world.is_ready()
        finally:
            world.operators[leader].signal(signal.SIGCONT)
        fault.struck = time.monotonic()
        fault.resumed.set()
        return fault


def leading(world: World) -> int:
    """Number of the operator that has the Lease."""
    held = world.observer.leases[world.name]
    return int(held[-1][1].rpartition("-")[2]) if held and held[-1][1] else -1


@dataclass(frozen=True)
class Together:
    """Two operators run; no other fault."""

    async def __call__(self, world: World, scenario: Scenario) -> None:
        """See the class."""
        await act(world, scenario)


@dataclass(frozen=True)
class LeaderLost:
    """The leader is killed once a request was carried out, and stays down: the other one goes on."""

    where: str

    async def __call__(self, world: World, scenario: Scenario) -> Fault:
        """See the class."""
        leader, fault = leading(world), Kill(self.where, 1, after_it=True)
        world.proxies[leader].on_kill = world.operators[leader].stay_down
        world.proxies[leader].arm(fault)
        await act(world, scenario)
        await over(world, fault)
        return fault


@dataclass(frozen=True)
class Restarted:
    """The operator is killed when all is well; the next one has nothing to write."""

    async def __call__(self, world: World, scenario: Scenario) -> None:
        """See the class."""
        await world.settled(QUIET_SECONDS)
        before = world.written_at
        world.operator.kill()
        world.proxy.arm(Fault())
        await world.until("a comparison", lambda: world.proxy.calls[Request("list", "sis")] >= 3)
        assert world.written_at == before, world.proxy.writes[-3:]


@dataclass(frozen=True)
class Stalely:
    """The operator is started again after the user acted, and its watches begin with lists of before."""

    seconds: float

    async def __call__(self, world: World, scenario: Scenario) -> Fault:
        """See the class."""
        fault = Stale(self.seconds)
        world.proxy.arm(fault)
        world.operator.kill()
        await world.until("the lists to be remembered", lambda: world.proxy.calls[Request("list", "sis")] >= 2)
        await world.settled()
        await act(world, scenario)
        fault.remembers = False
        world.operator.kill()
        await over(world, fault)
        return fault


@dataclass(frozen=True)
class Revoked:
    """Rights (verb, resource) are gone when the user acts, and come back."""

    rights: tuple[tuple[str, str], ...]
    seconds: float

    async def __call__(self, world: World, scenario: Scenario) -> None:
        """See the class."""
        await world.grant(*self.rights)
        await act(world, scenario)
        await asyncio.sleep(self.seconds)
        await world.grant()
