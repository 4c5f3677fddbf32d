"""One level-triggered `reconcile(key)`: observe, decide, plan, apply, status. It does all the work.

It reads everything it needs at each call, so that a lost, late or doubled event, a restart, and a failure
half-way all come to the same end.
"""

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
from tandem.benchmarked import benchmark
from tandem.cluster.apply import execute, matches
from tandem.cluster.client import Api
from tandem.cluster.events import FailureEvents, record_transitions
from tandem.cluster.kinds import CACHE_CLAIM, SERVICES_KIND
from tandem.cluster.lease import Leadership
from tandem.cluster.observe import observe
from tandem.cluster.reports import ReportReader
from tandem.decide import decide
from tandem.engine_health import engine_health, failures, shows_failure
from tandem.errors import Refused
from tandem.news import load
from tandem.observed import Observed
from tandem.plan import Action, autoscaling, plan
from tandem.settings import Settings
from tandem.status import rolls_out, status
from tandem.verdicts import verdicts
from tandem.volumes import claim_name, uses_cache

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
    """Soon: what goes on tells no events."""
    LATER = "rollout"
    """In a while: servers are on their way, or well again, and no event tells when time is up."""
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
            log.error("%s cannot be read, apply it again to see why: %s", key, error)
            return Next.EVENT
        if claim := self._claim(service):
            observed = replace(observed, cache=await self._api.get(CACHE_CLAIM, key.namespace, claim))
        decision = decide(service, self._settings, observed)
        refused = await self._execute(plan(decision, observed, self._settings, matches))
        scaling_refused = await self._execute(autoscaling(decision, observed, matches))
        news = self._reports.news(*key, service.uid)
        measured = benchmark(service, observed, load(news))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        failed = failures(observed)
        beside = verdicts(service, decision, observed, news, scaling_refused, measured)
        beside += engine_health(service, failed, now)
        shown = status(service, decision, observed, refused, now, news, beside, measured)
        await self._write_status(service, observed, shown)
        await self._failure_events.record(service, failed, now)
        if refused or scaling_refused:
            return Next.RETRY
        if observed.progress:
            return Next.SOON
        waits = rolls_out(shown) or shows_failure(shown) or _claim_changes(claim, observed)
        return Next.LATER if waits else Next.EVENT

    def _claim(self, service: SpeculativeInferenceService) -> str | None:
        """Name of the cache's claim, for a service that uses one: for the others it is not worth a request."""
        profile = self._settings.profile(service.spec.runtime.profile)
        return claim_name(service.spec) if profile and uses_cache(service.spec, profile) else None

    async def _execute(self, actions: Sequence[Action]) -> Refused | None:
        """Carry out a plan; what the API server said no to, None when it did not."""
        try:
            await execute(self._api, actions, self._leadership.check)
        except Refused as error:
            log.warning("%s", error)
            return error
        return None

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
