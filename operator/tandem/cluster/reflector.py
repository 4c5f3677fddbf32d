"""A live picture of the objects of one kind: listed, then watched; after client-go's reflector.

kopf's watches serve the operator, whose resync compares them with the API server. Here every end of a watch, and
every error, is followed by a new list: what a watch could lose is lost for `WATCH_SECONDS` at most.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Generic, TypeVar

from tandem.cluster.client import Api
from tandem.cluster.kinds import Kind
from tandem.errors import Refused, Transient
from tandem.observed import Object

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.5, 15.0


class Reflector(Generic[T]):
    """Keeps what `project` takes of each object, and nothing else, so that thousands of pods are small.

    `project` may return None for an object that is of no interest; it must not raise.
    """

    def __init__(
        self, api: Api, kind: Kind, namespace: str | None, selector: str, project: Callable[[Object], T | None]
    ) -> None:
        self._api, self._kind, self._namespace, self._selector = api, kind, namespace, selector
        self._project = project
        self._held: dict[str, T] = {}
        self.listed = asyncio.Event()
        """Set when a list succeeded: before, what is held says nothing."""
        self.problem = ""
        """Why the picture may be old; empty while it is fresh."""

    @property
    def held(self) -> list[T]:
        """What was taken of the objects that are there."""
        return list(self._held.values())

    async def run(self) -> None:
        """List and watch, for ever."""
        delay = FIRST_DELAY_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._watch(await self._list())
            except (Transient, Refused) as error:
                if not self.problem:
                    log.warning("%s are not seen as they are: %s", self._kind.plural, error)
                self.problem = str(error)
            if asyncio.get_running_loop().time() - began >= LAST_DELAY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            # After a watch that ended in peace, too: where a proxy ends each at once, lists would follow on lists.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LAST_DELAY_SECONDS)

    async def _list(self) -> str:
        objects, version = await self._api.list_at(self._kind, self._namespace, self._selector)
        taken = {str(obj["metadata"]["uid"]): self._project(obj) for obj in objects}
        self._held = {uid: item for uid, item in taken.items() if item is not None}
        self.problem = ""
        self.listed.set()
        return version

    async def _watch(self, version: str) -> None:
        async for event in self._api.watch(self._kind, self._namespace, self._selector, version):
            obj = event["object"]
            if event["type"] == "BOOKMARK":
                continue
            uid, item = str(obj["metadata"]["uid"]), self._project(obj)
            if event["type"] == "DELETED" or item is None:
                self._held.pop(uid, None)
            else:
                self._held[uid] = item
