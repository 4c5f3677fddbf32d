"""Comparing what the watches reported with what the API server lists: the proof that the watches live.

A change that no event reported is reconciled at once, but while a first list goes on, which reports all. Deletions
are changes, too: where a watch begins anew with a list, as it does when its resourceVersion is too old, no event may
report what went meanwhile.

A watch is dead where it has still not reported a change at the next comparison, though its first list has ended and
nothing came for `QUIET_SECONDS`: before that the event may be on its way. Every kind is by itself: one that may not
be listed leaves the others alone.
"""

import logging
import random
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tandem import counters, names
from tandem.cluster.client import METADATA_ONLY, Api
from tandem.cluster.kinds import OPTIONAL, SERVICES_KIND, Kind
from tandem.errors import Refused, Transient
from tandem.process.events import EventSource
from tandem.process.reconcile import Key
from tandem.process.watches import Picture, Sighting, keys, service_key

log = logging.getLogger(__name__)

GONE = Sighting("", None)
"""Stands for what is not listed any more."""
QUIET_SECONDS = 30.0
OVERDUE_SECONDS = 300.0
"""A change that is missed for so long is lost, however much else comes."""
FIRST_RESTART_SECONDS, LAST_RESTART_SECONDS = 15.0, 900.0


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
            await api.exists(SERVICES_KIND, namespace)
            found.append(namespace)
        except Refused as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for problem in refused:
        log.warning("a namespace is not served: %s", problem)
    return found


class Restarts:
    """Which dead watch may be started again now: once, then ever more rarely, from `FIRST_RESTART_SECONDS` to
    `LAST_RESTART_SECONDS` apart. What a new list cannot mend a hundred cannot either, and each is of everything."""

    def __init__(self) -> None:
        self._next: dict[Hashable, tuple[float, float]] = {}

    def allowed(self, watch: Hashable, now: float) -> bool:
        """Whether `watch` may be started again at `now`, seconds of a monotonic clock; if so, it counts as done."""
        at, delay = self._next.get(watch, (now, FIRST_RESTART_SECONDS))
        if now < at:
            return False
        if now - at > LAST_RESTART_SECONDS:  # it was well since
            delay = FIRST_RESTART_SECONDS
        later = now + delay * random.uniform(0.75, 1.25)
        self._next[watch] = later, min(2 * delay, LAST_RESTART_SECONDS)
        return True


class WatchComparison(NamedTuple):
    """What a comparison found."""

    keys: set[Key]
    """Services with changes that no event reported."""
    dead: list[Picture]
    """Watches that are dead, or missing."""


Missed = dict[str, tuple[Sighting, float]]
"""UID to what is listed, and since when it is missed."""


@dataclass
class Resync:
    """Compares again and again; remembers what was missed the last time."""

    api: Api
    source: EventSource
    children: Sequence[Picture]
    scopes: Sequence[str | None]
    compared_at: float = 0.0
    """Monotonic time of the last comparison of the services; 0 before the first."""
    moved_at: float = 0.0
    """Monotonic time at which the comparison of a kind ended last, well or not."""
    problem: str = ""
    """Why the services, or those of some namespaces, could not be compared; empty when all were. Also of children,
    where the API server is away."""
    forbidden: str = ""
    """Which kinds of children may not be listed, and why; empty when all may."""
    blind: bool = False
    """Whether services were not watched at the last one, though all could be listed. kopf asks for kinds at its start
    and at changes of CRDs; an API server that serves a kind may name it among its kinds only a moment later."""
    took: float = 0.0
    """Seconds that the last one took."""
    _missed: dict[tuple[Kind, str | None], Missed] = field(default_factory=dict)

    async def compare(self) -> WatchComparison:
        """Compare all kinds, one after the other."""
        began, asked, dead = time.monotonic(), set[Key](), list[Picture]()
        problems, forbidden, scopes = list[str](), list[str](), set[str | None]()
        pairs: list[tuple[Picture, str | None]] = [(self.source, scope) for scope in self.scopes]
        for picture, scope in [*pairs, *((child, child.namespace) for child in self.children)]:
            try:
                found = await self._compare(picture, scope)
            except (Transient, Refused) as error:
                ours = picture is self.source or isinstance(error, Transient)
                (problems if ours else forbidden).append(str(error))
                continue
            finally:
                self.moved_at = time.monotonic()
            asked |= found.keys
            dead += [one for one in found.dead if one not in dead]
            scopes |= {scope} if picture is self.source else set()
        if self._set_problem(problems, forbidden):
            asked |= keys(*self.source.seen.copy().values())
        if scopes:
            self.compared_at = time.monotonic()
            if self._missing(scopes) and self.source not in dead:
                dead.append(self.source)
        self.took = time.monotonic() - began
        return WatchComparison(asked, dead)

    async def _compare(self, picture: Picture, scope: str | None) -> WatchComparison:
        before = dict(picture.seen)
        listed = await self._listed(picture.kind, scope)
        now, seen, last = time.monotonic(), picture.seen, self._missed.get((picture.kind, scope), {})
        # What the watch reported while the list was read is newer than the list.
        still = ((uid, one, seen.get(uid)) for uid, one in listed.items() if seen.get(uid) == before.get(uid))
        missed = {uid: one for uid, one, known in still if known is None or known.version != one.version}
        gone = _gone(before, listed, seen, scope)
        missed |= dict.fromkeys(gone, GONE)
        self._missed[picture.kind, scope] = since = {
            uid: last[uid] if uid in last and last[uid][0] == one else (one, now) for uid, one in missed.items()
        }
        if picture.lists:
            return WatchComparison(set(), [])
        counters.MISSED_EVENTS.inc(len(missed))
        asked = {key for uid in missed for key in keys(seen.get(uid), listed.get(uid))}
        quiet = now - picture.heard_at >= QUIET_SECONDS
        again = [at for uid, (one, at) in since.items() if uid in last and last[uid][0] == one]
        dead = picture.follows and any(quiet or now - at >= OVERDUE_SECONDS for at in again)
        if missed:
            uid, one = next(iter(missed.items()))
            log.info("the watch of %s missed %d changes, such as %s: %s", picture.kind.plural, len(missed), uid, one)
        return WatchComparison(asked, [picture] if dead else [])

    def _missing(self, scopes: set[str | None]) -> bool:
        """Whether kopf watches some of `scopes` not, or services not for the second time."""
        blind_before, self.blind = self.blind, self.source.alive and not self.source.watching
        unwatched = self.source.watching and not scopes <= set(self.source.scopes)
        return unwatched or (blind_before and self.blind)

    def _set_problem(self, problems: Sequence[str], forbidden: Sequence[str]) -> bool:
        """Whether rights went or came back: the status of services shows those that are missing."""
        problem, forbids = "; ".join(problems), "; ".join(forbidden)
        for found, before in ((problem, self.problem), (forbids, self.forbidden)):
            if found and found != before:
                log.warning("cannot compare the watches with the API server: %s", found)
        changed = forbids != self.forbidden
        self.problem, self.forbidden = problem, forbids
        return changed

    async def _listed(self, kind: Kind, namespace: str | None) -> dict[str, Sighting]:
        """UID to version and key of everything that is watched there; nothing of an optional kind that is missing."""
        selector = "" if kind is SERVICES_KIND else names.watch_selector()

        def take(obj: Mapping[str, dict[str, str]]) -> tuple[str, Sighting]:
            meta = obj["metadata"]
            return meta["uid"], Sighting(meta["resourceVersion"], service_key(kind, meta))

        try:
            return dict((await self.api.list_at(kind, namespace, selector, take, METADATA_ONLY))[0])
        except Refused as error:
            if kind in OPTIONAL and error.status == 404:
                return {}
            raise


def _gone(
    before: Mapping[str, Sighting], listed: Mapping[str, Sighting], seen: Mapping[str, Sighting], scope: str | None
) -> dict[str, Sighting]:
    """What was seen in `scope` before the list and since, and is not listed."""
    return {
        uid: one
        for uid, one in before.items()
        if uid not in listed and seen.get(uid) == one and one.key and scope in (None, one.key.namespace)
    }
