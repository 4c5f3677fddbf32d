"""One level-triggered `reconcile(key)`: observe, decide, plan, apply, status. It does all the work.

It reads everything it needs at each call, so that a lost, late or doubled event, a restart, and a failure
half-way all come to the same end.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from tandem.api.conditions import SpecReason
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.apply import apply_status, execute
from tandem.cluster.client import Api
from tandem.cluster.events import FailureEvents, record_reverts, record_transitions
from tandem.cluster.kinds import CACHE_CLAIM
from tandem.cluster.lease import Leadership
from tandem.cluster.observe import is_there, observe, read
from tandem.conditions.benchmark import benchmark
from tandem.conditions.engine_health import failures, shows_failure
from tandem.conditions.ready import rolls_out, status
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import rights
from tandem.conditions.unseen import failed_status, stalled_status
from tandem.conditions.writes import load
from tandem.errors import Forbidden, NotLeader, Refused, Transient
from tandem.process.reports import ReportReader
from tandem.process.reverts import Reverts
from tandem.rollout.decide import decide
from tandem.rollout.observed import Live
from tandem.rollout.plan import (
    AUTOSCALERS,
    ROUTING,
    Action,
    autoscaling,
    cannot_decide,
    makes,
    missing_rights,
    plan,
    routing,
)
from tandem.settings import Settings

log = logging.getLogger(__name__)

LASTING_FAILURES = 9
"""Tries in a row that something is in the way of, until the status shows it: a minute, by the queue's delays."""
UNSEEN = frozenset(
    {SpecReason.KUBERNETES_TOO_OLD, SpecReason.CACHE_NOT_MANAGED_BY_TANDEM, SpecReason.CACHE_NOT_SHAREABLE}
)
"""Reasons of refusals that end without an event: by an upgrade, or another claim, as claims are not watched."""


class Key(NamedTuple):
    """A service to reconcile."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Next(Enum):
    """When to look at a service again."""

    EVENT = "done"
    """When an event asks for it."""
    SOON = "progress"
    """Soon: its progress makes no events."""
    LATER = "rollout"
    """In a while: servers are on their way, or well again, or a pod waits, and no event marks the deadline."""
    RETRY = "refused"
    """After a delay that grows: the cause of a refusal may go away unseen."""
    UPGRADED = "unparsed"
    """When an event asks for it: its spec is not understood, which ends with another spec, or another operator."""


class Reconciler:
    """Brings services to what their specs ask for."""

    def __init__(self, api: Api, settings: Settings, leadership: Leadership, reports: ReportReader) -> None:
        self._api = api
        self._settings = settings
        self._leadership = leadership
        self._reports = reports
        self._failure_events = FailureEvents(api, leadership)
        self._reverts = Reverts()
        self._failures: dict[Key, int] = {}
        """How often a service could not be reconciled since it could."""
        self._turn = asyncio.Lock()
        """To decide and plan, milliseconds of computing: between two services all else has its turn."""
        self.unread = set[Key]()
        """Services of which some kind could not be listed: to be reconciled again once all kinds may be listed,
        which no event reports."""

    async def reconcile(self, key: Key) -> Next:
        """Do what there is to do for one service; nothing when all is as it should be. The status shows what keeps it
        from that, if it lasts.

        Raises:
            Transient: something was in the way; call again.
            Exception: so it is with all that is not known; it is a defect.
        """
        try:
            after = await self._reconcile(key)
        except NotLeader:
            raise
        except Exception as error:
            await self._show(key, error)
            raise
        self._failures.pop(key, None)
        return after

    async def _show(self, key: Key, error: Exception) -> None:
        """Write into the status what keeps the service from being reconciled: what may go away at once, once it has
        come again. Where that fails too, the log has both."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, Transient) and failures < LASTING_FAILURES:
            return
        try:
            if found := await read(self._api, *key):
                await self._write_status(
                    found.service, found.live, failed_status(found.service, error, self._api.now())
                )
        except (Transient, Refused) as also:
            log.warning("%s: its status cannot show why it is not reconciled: %s", key, also)

    async def _reconcile(self, key: Key) -> Next:
        observation = await observe(self._api, self._settings, *key)
        self.unread.discard(key)
        if observation is None:
            self._reports.forget(*key)
            self._failure_events.forget(*key)
            self._failures.pop(key, None)
            self._reverts.forget(key)
            return Next.EVENT  # the garbage collector removes what the service owned
        service, observed = observation
        if observed.unread:
            self.unread.add(key)
        async with self._turn:
            decision = decide(service, self._settings, observed)
            children = plan(service, decision, observed, self._settings)
            plans = children, autoscaling(decision, observed), routing(decision, observed)
            await asyncio.sleep(0)  # before the next one
        now = self._api.now()
        if cannot_decide(decision, observed):
            missing = rights(missing_rights(decision, observed))
            await self._write_status(service, observed.service, stalled_status(service, observed, missing, now))
            # Of the kinds that are watched, `tandem.process.resync` sees when they may be read again.
            return Next.RETRY if CACHE_CLAIM.kind in observed.unread else Next.EVENT
        if any(map(makes, plans)) and not await is_there(self._api, service):
            raise Transient("it was deleted while it was read, and what is missing may be so with it")
        return await self._bring_about(Situation(service, decision, observed, now), plans)

    async def _bring_about(self, situation: Situation, plans: Sequence[Sequence[Action]]) -> Next:
        """Carry out the plans, of the children, the autoscaler and the routing; show what came of them."""
        service, observed = situation.service, situation.observed
        key = Key(service.namespace, service.name)
        limited = [self._reverts.limited(key, actions) for actions in plans]
        refused, scaling_refused, routing_refused = [await self._execute(service, each) for each, _ in limited]
        situation = replace(situation, contested=[each for _, found in limited for each in found])
        shown = status(self._after(situation, refused, scaling_refused, routing_refused))
        await self._write_status(service, observed.service, shown)
        await self._failure_events.record(service, failures(observed), situation.now)
        spec_refused = situation.decision.refusal and situation.decision.refusal.reason in UNSEEN
        if refused or scaling_refused or routing_refused or spec_refused:
            return Next.RETRY
        if observed.not_understood:
            return Next.UPGRADED
        if observed.progress:
            return Next.SOON
        waits = rolls_out(shown) or shows_failure(shown) or observed.awaits_claim or observed.waits
        waits = waits or bool(situation.contested)
        return Next.LATER if waits else Next.EVENT

    def _after(
        self,
        situation: Situation,
        refused: Sequence[Refused],
        scaling_refused: Sequence[Refused],
        routing_refused: Sequence[Refused],
    ) -> Situation:
        """The situation once the plan was carried out, with what is known from elsewhere."""
        service, observed = situation.service, situation.observed
        missing = missing_rights(situation.decision, observed)
        missing += [each for each in (*refused, *scaling_refused, *routing_refused) if isinstance(each, Forbidden)]

        def unread(kinds: Collection[str]) -> list[Refused]:
            return [why for kind, why in observed.unread.items() if kind in kinds]

        reading = self._reports.reading(service.namespace, service.name, service.uid)
        return replace(
            situation,
            refused=next(iter(refused), None),
            scaling_refused=next(iter((*scaling_refused, *unread(AUTOSCALERS))), None),
            routing_refused=next(iter((*routing_refused, *unread(ROUTING))), None),
            missing_rights=missing,
            reading=reading,
            benchmark=benchmark(service, observed, load(reading)),
        )

    async def _execute(self, service: SpeculativeInferenceService, actions: Sequence[Action]) -> list[Refused]:
        """Carry out a plan; what the API server refused."""
        refused = await execute(self._api, actions, self._leadership.check)
        if not refused:
            self._reverts.note(Key(service.namespace, service.name), actions)
            await record_reverts(self._api, self._leadership, service, actions)
        return refused

    async def _write_status(self, service: SpeculativeInferenceService, live: Live, wanted: dict[str, Any]) -> None:
        if await apply_status(self._api, live, wanted, self._leadership.check):
            await record_transitions(self._api, self._leadership, service, wanted)
