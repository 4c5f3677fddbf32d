"""Leader election by a Lease, with the right to write checked against the local clock before each write.

Follows client-go's leaderelection: expiry is judged by the time since a renewal was *seen*, on a local clock that
counts the time in which the machine is suspended, so clocks need not agree. The Python client's own election keeps
naive local wall-clock times and cannot be asked whether a write is still allowed, which is why this is not it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from tandem.api.wire import Object
from tandem.cluster.client import Api
from tandem.cluster.kinds import LEASE
from tandem.errors import NotLeader, Refused, Transient
from tandem.settings import LeaseSettings

log = logging.getLogger(__name__)

RELEASE_TRIES = 3
"""A renewal that was cut off on its way may still arrive between our reading and our writing."""
REQUEST_SHARE, RETRY_SHARE = 1 / 2, 1 / 5
"""Of the time between renewals: how long reading and writing the Lease may take, and the pause after a failure. One
request that gets no answer then costs no leadership: another renewal is made within two thirds of the duration."""


def since_boot() -> float:
    """Seconds since this machine started, suspension included: `time.monotonic` stands still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """Tries to hold the Lease for as long as `run()` runs."""

    def __init__(
        self,
        api: Api,
        settings: LeaseSettings,
        namespace: str,
        identity: str,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self._api = api
        self._settings = settings
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._held_until = 0.0
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self.acquired = asyncio.Event()
        """Set when this process becomes the leader; cleared when it no longer is."""

    def check(self) -> None:
        """Allow a write now.

        Raises:
            NotLeader: this process does not hold the Lease, or did not renew it in time.
        """
        if self._settings.enabled and self._clock() >= self._held_until:
            raise NotLeader(f"{self._identity} does not hold the Lease {self._settings.name}")

    async def run(self) -> None:
        """Acquire and renew, for ever; release when cancelled, so that the next one need not wait."""
        if not self._settings.enabled:
            self.acquired.set()
            await asyncio.Event().wait()
        try:
            while True:
                answered = await self._step()
                await asyncio.sleep(self._settings.renew_seconds * (1 if answered else RETRY_SHARE))
        finally:
            await self._release()

    async def _step(self) -> bool:
        """Whether the API server answered, whatever it was."""
        started, answered = self._clock(), True
        try:
            if await self._in_time(self._try()):
                # Counted from before the request: no other process may think it expired earlier than we do.
                self._held_until = started + self._settings.duration_seconds * 2 / 3
        except (Transient, Refused) as error:
            log.warning("cannot renew the Lease: %s", error)
            answered = False
        self._publish()
        return answered

    async def _in_time(self, asked: Awaitable[bool]) -> bool:
        """What comes of requests that may take a part of the time between renewals. Raises Transient."""
        seconds = self._settings.renew_seconds * REQUEST_SHARE
        try:
            async with asyncio.timeout(seconds):  # `wait_for` of Python 3.11 may lose a cancellation
                return await asked
        except TimeoutError:
            raise Transient(f"no answer within {seconds:g} s") from None

    def _publish(self) -> None:
        leads = self._clock() < self._held_until
        if leads != self.acquired.is_set():
            log.info("%s %s the Lease", self._identity, "holds" if leads else "lost")
        (self.acquired.set if leads else self.acquired.clear)()

    async def _try(self) -> bool:
        lease = await self._api.get(LEASE, self._namespace, self._settings.name)
        if lease is None:
            await self._api.create(LEASE, self._lease(None))
            return True
        spec = _spec(lease)
        holder = spec.get("holderIdentity") or ""
        seen = (holder, str(spec.get("renewTime")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        expired = self._clock() >= self._seen_at + float(spec.get("leaseDurationSeconds") or 0)
        if holder not in ("", self._identity) and not expired:
            return False
        await self._api.replace(LEASE, self._lease(lease))
        return True

    def _lease(self, before: Object | None, holder: str | None = None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = _spec(before) if before else {}
        holder = self._identity if holder is None else holder
        changed = old.get("holderIdentity") != holder
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": before["metadata"] if before else {"name": self._settings.name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": round(self._settings.duration_seconds),
                "renewTime": now,
                "acquireTime": now if changed else old.get("acquireTime", now),
                "leaseTransitions": int(old.get("leaseTransitions") or 0) + (changed and before is not None),
            },
        }

    async def _release(self) -> None:
        if self._clock() >= self._held_until:
            return
        self._held_until = 0.0
        for _ in range(RELEASE_TRIES):
            try:
                await self._in_time(self._give_up())
            except (Transient, Refused) as error:
                log.warning("cannot release the Lease: %s", error)
            else:
                return

    async def _give_up(self) -> bool:
        lease = await self._api.get(LEASE, self._namespace, self._settings.name)
        ours = lease is not None and _spec(lease).get("holderIdentity") == self._identity
        if lease and ours:
            await self._api.replace(LEASE, self._lease(lease, holder=""))
        return ours


def _spec(lease: Object) -> Object:
    """Empty where somebody made the Lease by its name alone, which the API server takes."""
    spec: Object = lease.get("spec") or {}
    return spec
