"""Comparing what the watches said with what the API server lists: the proof that the watches live.

A change that no event told is reconciled at once. One that is still untold at the next comparison means that
a watch is dead, whatever kopf says of it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem import metrics, names
from tandem.cluster.client import Api
from tandem.cluster.kinds import OPTIONAL, SERVICES_KIND, WATCHED, Kind
from tandem.errors import Refused, Transient
from tandem.handlers import EventSource, service_key
from tandem.observed import Object
from tandem.reconcile import Key

log = logging.getLogger(__name__)


async def list_known(api: Api, kind: Kind, namespace: str | None, selector: str = "") -> list[Object] | None:
    """Metadata of the objects of a kind; None where an optional one is not installed.

    Objects of one that is installed later are untold, so the watches count as dead and are started again, with it.
    """
    try:
        return await api.list_metadata(kind, namespace, selector)
    except Refused as error:
        if kind in OPTIONAL and error.status == 404:
            return None
        raise


@dataclass
class Resync:
    """Compares again and again; remembers what was untold the last time."""

    api: Api
    source: EventSource
    scopes: Sequence[str | None]
    compared_at: float = 0.0
    """Monotonic time of the last complete comparison; 0 before the first."""
    problem: str = ""
    """Why the last one was not complete; empty when it was."""
    _untold: dict[tuple[str, str], str] = field(default_factory=dict)

    async def compare(self) -> tuple[set[Key], bool]:
        """Keys with changes that no event told, and whether a watch is dead."""
        try:
            listed = await self._listed()
        except (Transient, Refused) as error:
            self.problem = str(error)
            log.warning("cannot compare the watches with the API server: %s", error)
            return set(), False
        untold = {entry: rv for entry, (rv, _) in listed.items() if self.source.seen.get(entry) != rv}
        dead = any(self._untold.get(entry) == rv for entry, rv in untold.items())
        keys = {key for entry in untold if (key := listed[entry][1])}
        metrics.MISSED_EVENTS.inc(len(untold))
        self._untold, self.compared_at, self.problem = untold, time.monotonic(), ""
        return keys, dead

    async def _listed(self) -> dict[tuple[str, str], tuple[str, Key | None]]:
        """(kind, uid) to resourceVersion and key, of everything that is watched."""
        found: dict[tuple[str, str], tuple[str, Key | None]] = {}
        for kind in (*WATCHED, *OPTIONAL):
            selector = "" if kind is SERVICES_KIND else names.watch_selector()
            for namespace in self.scopes:
                for item in await list_known(self.api, kind, namespace, selector) or ():
                    meta = item["metadata"]
                    found[kind.kind, meta["uid"]] = (meta["resourceVersion"], service_key(kind, meta))
        return found
