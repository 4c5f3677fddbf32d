"""Rounds that the server makes by itself (images/serving/collector/rounds.cpp): drafts come back verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tandem_serving.bls.batches import Batch, Group, S
from tandem_serving.bls.calls import ServerRound

# Seconds within which the answers of calls come that were verified together; one that is lost holds up no others.
TOGETHER = 0.01


class _Awaited(NamedTuple):
    """Calls that were verified together: so many are still to land, which is waited for until then."""

    left: int
    until: float


class ServerRounds:
    """One round is in flight, or one of each of two `micro_batches`. Calls of the target that come meanwhile join a
    verification in the server."""

    def __init__(
        self,
        micro_batches: Callable[[int], int] = lambda sequences: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._micro_batches = micro_batches
        self._clock = clock
        self._awaited: dict[int, _Awaited] = {}

    def verified(self, server_round: ServerRound | None) -> None:
        """A call that the server verified is over, given up or not: who was verified together goes on together."""
        if server_round is None or server_round.members == 1:
            return
        awaited = self._awaited.pop(server_round.group, _Awaited(server_round.members, self._clock() + TOGETHER))
        if awaited.left > 1:
            self._awaited[server_round.group] = awaited._replace(left=awaited.left - 1)

    def start(self, group: Group[S]) -> list[Batch[S]]:
        """Drafts that wait, to be verified in the server, where there is room for a round; the target's at once."""
        waiting, in_flight, now = group.waiting, len(group.in_flight["draft"]), self._clock()
        halves = self._micro_batches(group.members) > 1
        self._awaited = {number: awaited for number, awaited in self._awaited.items() if now < awaited.until}
        many = halves and in_flight == 1 and len(waiting["draft"]) >= group.members / 3
        begins = not self._awaited and (not in_flight or many)
        most = -(-group.members // 2) if halves else None
        batches = group.take("draft", most, makes_way=halves, via="round") if begins else []
        # Verifications of drafts from before there were rounds; made-up tokens fill up what has none.
        drafted = [row for row in waiting["target"] if row.call.draft_ids]
        waiting["target"] = [row for row in waiting["target"] if not row.call.draft_ids]
        batches += group.take("target", makes_way=halves, via="join")
        waiting["target"] = drafted
        return batches + group.take("target", makes_way=halves)
