"""One level-triggered `reconcile(key)`: observe, decide, plan, apply, status. It does all the work.

It reads everything it needs at each call, so that a lost, late or doubled event, a restart, and a failure
half-way all come to the same end.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from pydantic import ValidationError

from tandem import names
from tandem.api import API_VERSION, KIND
from tandem.api.types import SpeculativeInferenceService
from tandem.cluster.apply import execute, matches
from tandem.cluster.client import Api
from tandem.cluster.events import FailureEvents, record_transitions
from tandem.cluster.kinds import CACHE_CLAIM, SERVICES_KIND
from tandem.cluster.lease import Leadership
from tandem.cluster.observe import observe
from tandem.conditions.benchmark import benchmark
from tandem.conditions.engine_health import engine_health, failures, shows_failure
from tandem.conditions.ready import rolls_out, stalled_status, status
from tandem.conditions.speculation import rights, verdicts
from tandem.conditions.writes import load
from tandem.errors import Forbidden, Refused
from tandem.process.reports import ReportReader
from tandem.render.v1.volumes import claim_name, uses_cache
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.rollout.plan import AUTOSCALERS, Action, autoscaling, cannot_decide, missing_rights, plan
from tandem.settings import Settings

log = logging.getLogger(__name__)


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
    """In a while: servers are on their way, or well again, and no event marks the deadline."""
    RETRY = "refused"
    """After a delay that grows: the cause of a refusal may go away unseen."""


class Reconciler:
    """Brings services to what their specs ask for."""

    def __init__(self, api: Api, settings: Settings, leadership: Leadership, reports: ReportReader) -> None:
        self._api = api
        self._settings = settings
        self._leadership = leadership
        self._reports = reports
        self._failure_events = FailureEvents(api, leadership)
        self._turn = asyncio.Lock()
        """To decide and plan, milliseconds of computing: between two services all else has its turn."""

    async def reconcile(self, key: Key) -> Next:
        """Do what there is to do for one service; nothing when all is as it should be.

        Raises:
            Transient: something was in the way; call again.
        """
        observed = await observe(self._api, key.namespace, key.name)
        if observed is None:
            self._reports.forget(*key)
            self._failure_events.forget(*key)
            return Next.EVENT  # the garbage collector removes what the service owned
        try:
            service = SpeculativeInferenceService.model_validate(observed.service)
        except ValidationError as error:
            # The API server's schema is made from the same types: only an object older than the CRD gets here.
            log.error("%s cannot be parsed: apply it again, and the API server says what to change: %s", key, error)
            return Next.EVENT
        observed = await self._with_claim(service, observed)
        async with self._turn:
            decision = decide(service, self._settings, observed)
            actions = plan(decision, observed, self._settings, matches)
            await asyncio.sleep(0)  # before the next one
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if cannot_decide(decision, observed):
            missing = rights(missing_rights(decision, observed))
            await self._write_status(service, observed, stalled_status(service, observed, missing, now))
            # Of the kinds that are watched, `tandem.process.resync` sees when they may be read again.
            return Next.RETRY if CACHE_CLAIM.kind in observed.unread else Next.EVENT
        return await self._bring_about(service, observed, decision, actions, now)

    async def _bring_about(
        self,
        service: SpeculativeInferenceService,
        observed: Observed,
        decision: Decision,
        actions: Sequence[Action],
        now: str,
    ) -> Next:
        missing = missing_rights(decision, observed)
        refused = await self._execute(actions)
        scaling_refused = await self._execute(autoscaling(decision, observed, matches))
        missing += [each for each in (*refused, *scaling_refused) if isinstance(each, Forbidden)]
        unseen = (why for kind, why in observed.unread.items() if kind in AUTOSCALERS)
        reading = self._reports.reading(service.namespace, service.name, service.uid)
        measured = benchmark(service, observed, load(reading))
        independent = verdicts(
            service, decision, observed, reading, next(iter((*scaling_refused, *unseen)), None), measured
        )
        failed = failures(observed)
        independent += [*rights(missing), *engine_health(service, failed, now)]
        shown = status(service, decision, observed, next(iter(refused), None), now, reading, independent, measured)
        await self._write_status(service, observed, shown)
        await self._failure_events.record(service, failed, now)
        if refused or scaling_refused:
            return Next.RETRY
        if observed.progress:
            return Next.SOON
        waits = rolls_out(shown) or shows_failure(shown) or _claim_changes(self._claim(service), observed)
        return Next.LATER if waits else Next.EVENT

    async def _with_claim(self, service: SpeculativeInferenceService, observed: Observed) -> Observed:
        claim = self._claim(service)
        if not claim:
            return observed
        try:
            return replace(observed, cache=await self._api.get(CACHE_CLAIM, service.namespace, claim))
        except Forbidden as error:
            return replace(observed, unread={**observed.unread, CACHE_CLAIM.kind: error})

    def _claim(self, service: SpeculativeInferenceService) -> str | None:
        """Name of the cache's claim, for a service that uses one: for the others it is not worth a request."""
        profile = self._settings.profile(service.spec.runtime.profile)
        return claim_name(service.spec) if profile and uses_cache(service.spec, profile) else None

    async def _execute(self, actions: Sequence[Action]) -> list[Refused]:
        """Carry out a plan; what the API server refused."""
        return await execute(self._api, actions, self._leadership.check)

    async def _write_status(
        self, service: SpeculativeInferenceService, observed: Observed, wanted: dict[str, Any]
    ) -> None:
        manifest: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": service.name, "namespace": service.namespace},
            "status": wanted,
        }
        if matches(manifest, observed.service, "status"):
            return
        manifest["metadata"]["uid"] = service.uid
        self._leadership.check()
        await self._api.apply(SERVICES_KIND, manifest, "status")
        await record_transitions(self._api, self._leadership, service, wanted)


def _claim_changes(claim: str | None, observed: Observed) -> bool:
    """Whether the user's claim is to come, or one is to go: claims are not watched."""
    if observed.cache is None:
        return claim not in (None, names.CACHE_CLAIM)
    return "deletionTimestamp" in observed.cache["metadata"]
