"""How often the same is applied over what somebody else writes again and again: not for ever.

A person's edit of a child is reverted at once. A tool that makes its edit again would have its own undone, and pods
restarted, without end: after `MOST` times the child is left as it is for `PAUSE_SECONDS`, and a condition shows it.
"""

import time
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

from tandem.children.comparison import owned_fields
from tandem.children.foreign import described, foreign
from tandem.conditions.situation import Contested
from tandem.digest import digest
from tandem.rollout.plan import Action, Apply

MOST, PAUSE_SECONDS = 5, 3600.0


@dataclass
class _Fight:
    times: list[float] = field(default_factory=list)
    """When the same was applied over the same, within `PAUSE_SECONDS`."""
    until: float = 0.0
    """Until when it is left alone."""


class Reverts:
    """Remembers what was applied lately, for each service; in memory, so that a restart begins anew.

    Where the service asked for something else in between, as with an autoscaler, counting begins anew.
    """

    def __init__(self) -> None:
        self._fights: dict[Hashable, dict[tuple[str, str, str], _Fight]] = {}

    def limited(self, service: Hashable, actions: Sequence[Action]) -> tuple[list[Action], list[Contested]]:
        """The actions without those that were carried out too often, and these."""
        now, left, given_up = time.monotonic(), list[Action](), list[Contested]()
        for action in actions:
            fight = self._fight(service, action, now)
            if isinstance(action, Apply) and action.live and fight and now < fight.until:
                given_up.append(Contested(action.live.kind, action.live.name, MOST, described(action.live.manifest)))
            else:
                left.append(action)
        return left, given_up

    def note(self, service: Hashable, actions: Collection[Action]) -> None:
        """These were carried out."""
        now = time.monotonic()
        for action in actions:
            if isinstance(action, Apply) and action.live:
                fights = self._fights.setdefault(service, {})
                fight = self._fight(service, action, now) or fights.setdefault(_key(action), _Fight())
                for other in (each for key, each in fights.items() if key[:2] == _key(action)[:2]):
                    other.times = other.times if other is fight else []
                fight.times.append(now)
                if len(fight.times) >= MOST:
                    fight.until, fight.times = now + PAUSE_SECONDS, []

    def forget(self, service: Hashable) -> None:
        """The service is gone."""
        self._fights.pop(service, None)

    def _fight(self, service: Hashable, action: Action, now: float) -> _Fight | None:
        """That of an action, without what is long over; and of all others of the service, which are dropped then."""
        fights = self._fights.get(service, {})
        for key, fight in list(fights.items()):
            fight.times = [at for at in fight.times if now - at < PAUSE_SECONDS]
            if not fight.times and now >= fight.until:
                del fights[key]
        return fights.get(_key(action)) if isinstance(action, Apply) and action.live else None


def _key(action: Apply) -> tuple[str, str, str]:
    """The child, and what is applied over whose fields: other values in the same fields are the same fight."""
    kind, name = str(action.manifest["kind"]), str(action.manifest["metadata"]["name"])
    live = action.live.manifest if action.live else {}
    return kind, name, digest([action.manifest, owned_fields(live), foreign(live)])
