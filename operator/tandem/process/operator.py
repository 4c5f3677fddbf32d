"""The operator process: event source, resync, leader election, workers and probes, wired together.

What the first lists leave is exempt from garbage collection (`gc.freeze`): of 10,000 services it would look through
hundreds of thousands of objects every few seconds, for a third of a second in which nothing else runs. While they go
on, it comes rarely (`COLLECTED`).

Each part may fail and be started again without the others noticing; a defect in this wiring ends the process,
and Kubernetes starts it again.
"""

import asyncio
import gc
import logging
import random
import time

from tandem import counters
from tandem.cluster.client import Api
from tandem.cluster.identity import identity
from tandem.cluster.kinds import SERVICES_KIND
from tandem.cluster.lease import Leadership
from tandem.cluster.sole_operator import SoleOperator
from tandem.errors import Refused, Transient
from tandem.http.probes import serve
from tandem.metrics_server.rounds import Rounds
from tandem.process.events import EventSource
from tandem.process.health import Health
from tandem.process.reconcile import Key, Next, Reconciler
from tandem.process.reports import ReportReader
from tandem.process.resync import Restarts, Resync, listable
from tandem.process.watches import ChildWatches
from tandem.process.workqueue import WorkQueue
from tandem.settings import Settings

log = logging.getLogger(__name__)

AFTER_SECONDS = {Next.SOON: 15.0, Next.LATER: 30.0}
"""When to look again at what sends no events."""
RESTART_SECONDS, LAST_RESTART_SECONDS, CRD_POLL_SECONDS = 1.0, 60.0, 2.0
COMPARED_SHARE = 0.1
"""Share of the time that comparisons may take: where services are many they come more rarely, at twice the settings'
interval at most."""
SAMPLE_SECONDS = 0.1
COLLECTED = 20_000, 10, 10
"""`gc.set_threshold`: objects made until the youngest are collected, and collections until those of the next ones. By
Python's own 700 all objects are looked through every 1.5 s while 10,000 services are listed, for 0.15 s of a core."""


class Operator:
    """One operator process."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._settings = settings
        self._api = api
        self._queue: WorkQueue[Key] = WorkQueue()
        self._leadership = Leadership(api, settings.lease, *identity())
        self._sole_operator = SoleOperator(api, settings.scopes, f"{identity()[0]}/{settings.lease.name}")
        rounds = Rounds(api, settings) if settings.reports.from_pods else None
        self._reports = ReportReader(settings.reports, lambda *key: self._queue.add(Key(*key)), rounds=rounds)
        self._reconciler = Reconciler(api, settings, self._leadership, self._reports)
        self._source = EventSource(self._queue.add)
        self._children = ChildWatches(api, settings.scopes, self._queue.add)
        self._resync = Resync(api, self._source, self._children.all, settings.scopes)
        self._restarts = Restarts()

    async def run(self, host: str, port: int) -> None:
        """Run until cancelled."""
        health = Health(
            self._api,
            self._leadership,
            self._source,
            self._resync,
            self._settings.resync_seconds,
            time.monotonic(),
            self._sole_operator,
        )
        gc.set_threshold(*COLLECTED)
        probes = await serve(health, host, port)
        counters.QUEUE_DEPTH.set_function(lambda: len(self._queue))
        counters.LEADER.set_function(lambda: float(self._leadership.acquired.is_set()))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_sample_lag())
                group.create_task(self._leadership.run())
                group.create_task(self._sole_operator.run(self._settings.resync_seconds))
                group.create_task(self._children.run())
                group.create_task(self._reports.run())
                group.create_task(self._reports.run_rounds())
                await self._children.first_lists()
                gc.freeze()
                group.create_task(self._watch())
                group.create_task(self._compare())
                for _ in range(self._settings.workers):
                    group.create_task(self._queue.work(self._handle))
        finally:
            await self._source.stop()
            await probes.close()

    async def _handle(self, key: Key) -> None:
        await self._sole_operator.ours.wait()
        await self._leadership.acquired.wait()
        started = time.monotonic()
        try:
            after = await self._reconciler.reconcile(key)
        except Transient as error:
            result = "again"
            log.info("%s again in %.1f s: %s", key, self._queue.retry(key), error)
        except Refused as error:  # it may not be read: there is no status to say so
            result = Next.RETRY.value
            log.warning("%s again in %.1f s: %s", key, self._queue.retry(key), error)
        except Exception:  # a defect at one service must not end the worker, which serves all
            result = "error"
            log.exception("%s again in %.1f s", key, self._queue.retry(key))
        else:
            result = after.value
            if after is Next.RETRY:
                self._queue.retry(key)
            else:
                self._queue.forget(key)
            if delay := AFTER_SECONDS.get(after):
                self._queue.add_later(key, delay)
        counters.RECONCILE_SECONDS.labels(result).observe(time.monotonic() - started)

    async def _watch(self) -> None:
        """Keep the watch of services running: wait for our CRD, start it, start it again when it ends."""
        delay = RESTART_SECONDS
        while True:
            scopes, began = await self._wait_for_crd(), time.monotonic()
            await self._source.run(scopes)
            counters.WATCH_RESTARTS.inc()
            delay = RESTART_SECONDS if time.monotonic() - began > LAST_RESTART_SECONDS else delay
            log.warning("the watch of services ended: starting it again in %.0f s", delay)
            await asyncio.sleep(delay * random.uniform(0.75, 1.25))
            delay = min(2 * delay, LAST_RESTART_SECONDS)

    async def _wait_for_crd(self) -> list[str | None]:
        """Returns the scopes that can be watched."""
        shown = ""
        while True:
            try:
                return await listable(self._api, self._settings.scopes)
            except (Transient, Refused) as error:
                if str(error) != shown:
                    log.warning("cannot list %s yet: %s", SERVICES_KIND.plural, error)
                    shown = str(error)
                await asyncio.sleep(CRD_POLL_SECONDS)

    async def _compare(self) -> None:
        """Compare soon after the start, then at the settings' interval, sooner while something is missed."""
        delay, listing = 2.0, True
        while True:
            await asyncio.sleep(delay)
            keys, dead = await self._resync.compare()
            if not self._resync.forbidden:
                keys |= self._reconciler.unread
            if listing and not self._source.lists:
                listing = False
                gc.freeze()
            for key in keys:
                self._queue.add(key)
            for picture in dead:
                if self._restarts.allowed((picture.kind, picture.namespace), time.monotonic()):
                    log.error("the watch of %s is dead: starting it again", picture.kind.plural)
                    await picture.restart()
            delay = self._settings.resync_seconds
            if keys or self._resync.blind:
                delay = min(10.0, delay)
            if self._resync.problem:
                delay = min(5.0, delay)
            delay = max(delay, min(self._resync.took / COMPARED_SHARE, 2 * self._settings.resync_seconds))


async def _sample_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SAMPLE_SECONDS
        await asyncio.sleep(SAMPLE_SECONDS)
        counters.LOOP_LAG_SECONDS.observe(max(0.0, loop.time() - due))
