"""A live picture of the objects of one kind: listed, then watched; after client-go's reflector.

Every end of a watch, and every error, is followed by a new list: what a watch could lose is lost for
`WATCH_SECONDS` at most.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from tandem import counters
from tandem.api.wire import Object
from tandem.cluster.client import JSON, Api
from tandem.cluster.kinds import OPTIONAL, Kind
from tandem.errors import Refused, Transient

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.5, 15.0


class Reflector(Generic[T]):
    """Keeps what `project` takes of each object, and nothing else, so that thousands of pods are small.

    `project` may return None for an object that is of no interest; it must not raise.
    """

    accept: tuple[str, str] = (JSON, JSON)
    """Types of content to ask for, of lists and of events."""

    def __init__(
        self, api: Api, kind: Kind, namespace: str | None, selector: str, project: Callable[[Object], T | None]
    ) -> None:
        self.kind, self.namespace = kind, namespace
        self._api, self._selector, self._project = api, selector, project
        self._held: dict[str, T] = {}
        self.listed = asyncio.Event()
        """Set when a list succeeded: before, what is held says nothing."""
        self.follows = False
        """Whether a list is complete and its watch goes on: what is not held then was missed."""
        self.heard_at = 0.0
        """Monotonic time of the last list or event; 0 before the first."""
        self.problem = ""
        """Why the picture may be old; empty while it is fresh."""
        self._current: asyncio.Timeout | None = None

    @property
    def held(self) -> list[T]:
        """What was taken of the objects that are there."""
        return list(self._held.values())

    @property
    def seen(self) -> Mapping[str, T]:
        """The same by UID; not a copy."""
        return self._held

    def changed(self, before: T | None, now: T | None) -> None:
        """Called with what was held of an object and what is now, None where nothing is, whenever they differ."""

    async def run(self) -> None:
        """List and watch, for ever."""
        delay = FIRST_DELAY_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(None) as self._current:
                    await self._watch(await self._list())
            except TimeoutError:
                counters.WATCH_RESTARTS.inc()
                log.warning("listing %s again: their watch missed a change", self.kind.plural)
            except (Transient, Refused) as error:
                self._set_problem(error)
            finally:
                self.follows = False
            if asyncio.get_running_loop().time() - began >= LAST_DELAY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            # After a watch that ended in peace, too: where a proxy ends each at once, lists would follow on lists.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LAST_DELAY_SECONDS)

    async def restart(self) -> None:
        """Give up the watch, and list anew after a delay that grows."""
        if self.follows and self._current:
            self._current.reschedule(0.0)

    def _set_problem(self, error: Transient | Refused) -> None:
        missing = self.kind in OPTIONAL and isinstance(error, Refused) and error.status == 404
        if not self.problem:
            level = logging.INFO if missing else logging.WARNING
            log.log(level, "%s are not seen as they are: %s", self.kind.plural, error)
        self.problem = str(error)
        if missing:
            self._hold({})

    async def _list(self) -> str:
        taken, version = await self._api.list_at(
            self.kind, self.namespace, self._selector, self._take, self.accept[0]
        )
        self.problem, self.heard_at, self.follows = "", time.monotonic(), True
        self.listed.set()
        self._hold({uid: item for uid, item in taken if item is not None})
        return version

    def _hold(self, held: dict[str, T]) -> None:
        before = self._held
        # What is the same stays the same object: thousands of new ones would be garbage collection's work for long.
        self._held = {uid: before[uid] if before.get(uid) == item else item for uid, item in held.items()}
        for uid in before.keys() | held.keys():
            self._tell(before.get(uid), held.get(uid))

    async def _watch(self, version: str) -> None:
        async for event in self._api.watch(self.kind, self.namespace, self._selector, version, self.accept[1]):
            self.heard_at = time.monotonic()
            if event["type"] == "BOOKMARK":
                continue
            uid, item = self._take(event["object"])
            before, now = self._held.get(uid), None if event["type"] == "DELETED" else item
            if now is None:
                self._held.pop(uid, None)
            else:
                self._held[uid] = now
            self._tell(before, now)

    def _take(self, obj: Object) -> tuple[str, T | None]:
        return str(obj["metadata"]["uid"]), self._project(obj)

    def _tell(self, before: T | None, now: T | None) -> None:
        if before != now:
            self.changed(before, now)
