"""One batch with all that wait: the call's overhead is paid once, and the engine has all of them in one step."""

from __future__ import annotations

from collections.abc import Callable

from tandem_serving.bls.batches import Batch, Group, S
from tandem_serving.bls.calls import Role
from tandem_serving.bls.strategies import per_sequence


class Waves:
    """All sequences draft, then all are verified, with one batch in flight. Or two `micro_batches` are: one half of
    the sequences drafts while the other is verified, and each engine may have the second batch in its queue.
    """

    def __init__(self, micro_batches: Callable[[int], int] = lambda sequences: 1) -> None:
        self._micro_batches = micro_batches

    def start(self, group: Group[S]) -> list[Batch[S]]:
        """The batches that start now."""
        waiting, in_flight = group.waiting, group.in_flight
        # The phase in which more sequences wait goes first; the others join them in the next.
        roles: list[Role] = sorted(waiting, key=lambda role: -len(waiting[role]))
        idle = not any(in_flight.values())
        if self._micro_batches(group.members) == 1:
            return group.take(roles[0]) if idle else []
        # A batch may queue behind the one in flight: the engine then goes from one to the other without us. A
        # small one waits for more, or it would take a step of the target for itself, round after round.
        half, least = -(-group.members // 2), group.members / 3
        early = _first_calls(group)
        ready = [role for role in roles if idle or (len(in_flight[role]) < 2 and len(waiting[role]) >= least)]
        return early + [batch for role in ready for batch in group.take(role, half, makes_way=True)]


def _first_calls(group: Group[S]) -> list[Batch[S]]:
    """New prompts' calls while one batch runs and one is in the engine's queue: they join the latter's step."""
    waiting = group.waiting["target"]
    if len(group.in_flight["target"]) < 2:
        return []
    group.waiting["target"] = [row for row in waiting if not row.call.first]
    return per_sequence.start(row for row in waiting if row.call.first)
