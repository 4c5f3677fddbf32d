"""Running a plan, and judging what comes of it."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .oracles import Servers, differences, made, more_made, orphans, servers, unhandled, without_lease
from .plans import Plan
from .proxy import Fault
from .scenarios import SCENARIOS
from .world import QUIET_SECONDS, World

REFERENCE_SECONDS = 180.0
"""All plans of a scenario rest on its reference."""


@dataclass
class Outcome:
    """What a run came to."""

    state: dict[str, Any]
    made: dict[str, int]
    servers: Servers
    requests: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    recovery: float = 0.0
    """Seconds from the end of the fault until all was as it should be."""


class Recorder(Fault):
    """No fault: counts events of watches by type and kind."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def event(self, call: Any, event: dict[str, Any]) -> dict[str, Any] | None:
        """Count it."""
        if event["type"] != "BOOKMARK":
            self.events[f"{event['type']}-{call.request.resource}"] += 1
        return event


async def reference(world: World, scenario: str) -> Outcome:
    """A run without a fault: what the others are compared with."""
    await world.enter()
    await prepare(world, scenario)
    start, pods, recorder = len(world.scene.changes), world.scene.servers, Recorder()
    world.proxy.arm(recorder)
    for step in SCENARIOS[scenario].act:
        await step(world)
    done = SCENARIOS[scenario].done
    await world.until("the end", lambda: done(world.scene) and not orphans(world.scene), REFERENCE_SECONDS)
    await world.settled(QUIET_SECONDS)
    changes = world.scene.changes[start:]
    requests = Counter({str(request): number for request, number in world.proxy.calls.items()})
    return Outcome(world.state(), made(changes), servers(changes, pods), requests, recorder.events)


async def prepare(world: World, scenario: str) -> None:
    """What comes before the fault."""
    await world.started()
    for step in SCENARIOS[scenario].before:
        await step(world)
        await world.is_ready()


async def run(world: World, plan: Plan, wanted: Outcome) -> Outcome:
    """Run a plan. Raises AssertionError with all that is wrong."""
    await world.enter(plan.operators, plan.defect)
    await prepare(world, plan.scenario)
    start, pods, began = len(world.scene.changes), world.scene.servers, time.monotonic()
    try:
        fault = await plan.course(world, SCENARIOS[plan.scenario])
        ended = time.monotonic()
        recovered = await _converged(world, plan, wanted)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{seen_of(world)}") from error
    changes = world.scene.changes[start:]
    found = Outcome(world.state(), made(changes), servers(changes, pods))
    wrong = [line async for line in _wrong(world, plan, wanted, found)]
    if fault is not None and not fault.struck:
        wrong.append("the fault did not strike")
    assert not wrong, "\n".join([*wrong, seen_of(world)])
    since = max(fault.struck if fault else began, min(ended, recovered))
    found.recovery = max(0.0, recovered - since)
    return found


async def _converged(world: World, plan: Plan, wanted: Outcome) -> float:
    """Wait until all is as in the reference, and stays so without a write while the operators are ready (a, c).

    Returns when it was so first."""
    deadline, since, seen, lines = time.monotonic() + plan.deadline, 0.0, -1, ["nothing was looked at"]
    ready = 0.0 if plan.honest else 1.0
    while True:
        if seen != len(world.scene.changes):
            seen = len(world.scene.changes)
            lines = list(differences(wanted.state, world.state()))
            since = since or time.monotonic() if not lines else 0.0
        if not ready and await world.are_ready():
            ready = time.monotonic()
        now = time.monotonic()
        if since and ready and now - max(since, ready, world.written_at) > QUIET_SECONDS:
            if not plan.honest or await world.are_ready():  # one that went on a moment ago may have just failed
                return since
            ready = 0.0
        problems = lines or ["the operators are not ready"]
        assert now < deadline, "\n".join([f"not as it should be within {plan.deadline:.0f} s:", *problems])
        await asyncio.sleep(0.1)


async def _wrong(world: World, plan: Plan, wanted: Outcome, found: Outcome) -> Any:
    """What the oracles (b), (d), (g) and (h) find."""
    if plan.counts:
        for line in more_made(wanted.made, found.made, plan.explains):
            yield line
        for line in _servers(wanted.servers, found.servers, plan.fewer_ready):
            yield line
    for line in orphans(world.scene):
        yield line
    if plan.operators > 1:
        slipped = without_lease(await world.audited(), world.observer.leases[world.name])
        for line in slipped if len(slipped) > plan.slips else ():
            yield line
    for operator in world.operators:
        for line in operator.unexpected:
            yield line
        for text in unhandled(operator.text(), plan.allowed):
            yield f"{operator.name} did not handle: {text}"
        # That it is ready, too, is what was waited for.
        status, text = (200, "") if operator.down else await world.probe(operator, "/healthz")
        if status != 200:
            yield f"{operator.name} /healthz: {status} {text}"


def _servers(wanted: Servers, found: Servers, fewer_ready: bool) -> Iterator[str]:
    if found.most > wanted.most:
        yield f"{found.most} servers at a time, where {wanted.most} are enough"
    if found.revisions > wanted.revisions:
        yield f"servers of {found.revisions} revisions at a time, where {wanted.revisions} are enough"
    if found.fewest_ready < wanted.fewest_ready and not fewer_ready:
        yield f"{found.fewest_ready} servers were ready, where {wanted.fewest_ready} can be"


def seen_of(world: World) -> str:
    """What helps to see why: writes, and the end of the logs."""
    lines = [f"{write.at:.2f} {write.request} {write.status}" for proxy in world.proxies for write in proxy.writes]
    logs = [f"--- {operator.name}\n{operator.text()[-3000:]}" for operator in world.operators]
    return "\n".join([f"namespace {world.name}", *lines[-30:], *logs])
