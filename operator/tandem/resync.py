"""Comparing what the watches said with what the API server lists: the proof that the watches live.

A change that no event told is reconciled at once. One that is still untold at the next comparison means that
a watch is dead, whatever kopf says of it. Deletions are changes, too: where a watch begins anew with a list, as it
does when its resourceVersion is too old, no event tells of what went meanwhile.
"""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tandem import metrics, names
from tandem.cluster.client import Api
from tandem.cluster.kinds import OPTIONAL, SERVICES_KIND, WATCHED, Kind
from tandem.errors import Refused, Transient
from tandem.handlers import EventSource, Seen, service_key
from tandem.observed import Object
from tandem.reconcile import Key

log = logging.getLogger(__name__)

GONE = ""
"""Stands for the resourceVersion of what is not listed any more."""


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


async def listable(api: Api, scopes: Sequence[str | None]) -> list[str | None]:
    """Those of `scopes` whose services can be listed.

    A namespace that was deleted took the rights in it along: that is no reason to leave the others alone.

    Raises:
        Transient: the API server is away.
        Refused: none can; most likely there is no such kind yet.
    """
    found, refused = list[str | None](), list[Refused]()
    for namespace in scopes:
        try:
            await api.list_metadata(SERVICES_KIND, namespace)
            found.append(namespace)
        except Refused as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for problem in refused:
        log.warning("a namespace is not served: %s", problem)
    return found


@dataclass
class Resync:
    """Compares again and again; remembers what was untold the last time."""

    api: Api
    source: EventSource
    scopes: Sequence[str | None]
    compared_at: float = 0.0
    """Monotonic time of the last complete comparison; 0 before the first."""
    problem: str = ""
    """Why the last one was not complete, or of some namespaces alone; empty when it was of all."""
    blind: bool = False
    """Whether a kind was not watched at the last one, though all could be listed. kopf asks for kinds at its start
    and at changes of CRDs; an API server that serves a kind may name it among its kinds only a moment later."""
    _untold: dict[tuple[str, str], str] = field(default_factory=dict)

    async def compare(self) -> tuple[set[Key], bool]:
        """Keys with changes that no event told, and whether a watch is dead, or missing."""
        before, listed, scopes, problems = self.source.seen.copy(), Seen(), set[str | None](), list[str]()
        for scope in self.scopes:
            try:
                listed |= await self._listed(scope)
                scopes.add(scope)
            except (Transient, Refused) as error:
                problems.append(str(error))
        self._set_problem("; ".join(problems))
        if not scopes:
            return set(), False
        seen = self.source.seen
        gone = {
            entry: told
            for entry, told in before.items()
            if entry not in listed and seen.get(entry) == told and _within(scopes, told[1])
        }
        untold = {entry: rv for entry, (rv, _) in listed.items() if seen.get(entry, ("",))[0] != rv}
        untold |= dict.fromkeys(gone, GONE)
        dead = any(self._untold.get(entry) == rv for entry, rv in untold.items())
        dead |= self.source.watching and not scopes <= set(self.source.scopes)
        blind_before, self.blind = self.blind, self.source.alive and not self.source.watching
        dead |= blind_before and self.blind
        concerned = listed | gone
        keys = {key for entry in untold if (key := concerned[entry][1])}
        metrics.MISSED_EVENTS.inc(len(untold))
        self._untold, self.compared_at = untold, time.monotonic()
        return keys, dead

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("cannot compare the watches with the API server: %s", problem)
        self.problem = problem

    async def _listed(self, namespace: str | None) -> Seen:
        """(kind, uid) to resourceVersion and key, of everything that is watched there."""
        found: Seen = {}
        for kind in (*WATCHED, *OPTIONAL):
            selector = "" if kind is SERVICES_KIND else names.watch_selector()
            for item in await list_known(self.api, kind, namespace, selector) or ():
                meta = item["metadata"]
                found[kind.kind, meta["uid"]] = (meta["resourceVersion"], service_key(kind, meta))
        return found


def _within(scopes: Collection[str | None], key: Key | None) -> bool:
    return key is not None and (None in scopes or key.namespace in scopes)
