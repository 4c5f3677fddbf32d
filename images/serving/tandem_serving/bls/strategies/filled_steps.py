"""Steps of the target that do not take all sequences, since texts are long: each is filled with what waits longest.

A call whose rows take several steps would wait for its last row.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic

from tandem_serving.bls.batches import Batch, Group, S
from tandem_serving.bls.step_limits import StepLimits


class FilledSteps(Generic[S]):
    """Drafts start at once, in batches that fit. The target has one step in flight, and one more in its queue when
    that is full, too; groups share steps.
    """

    def __init__(self, limits: StepLimits) -> None:
        self._limits = limits
        self._planned = 0

    def start(self, groups: dict[Hashable, Group[S]]) -> list[Batch[S]]:
        """The batches of all groups that start now. Those that are in a step go to the end of `groups`."""
        batches = [batch for group in groups.values() for batch in group.take("draft")]
        steps = in_flight(groups)
        while len(steps) < 2:
            counts, full = self._next_step(groups)
            if not counts or (steps and not full):
                break
            self._planned += 1
            steps.add(self._planned)
            for key, count in counts.items():
                groups[key] = group = groups.pop(key)  # others come first in the next step
                for batch in group.take("target", count, makes_way=True):
                    batch.step = self._planned
                    batches.append(batch)
        return batches

    def _next_step(self, groups: dict[Hashable, Group[S]]) -> tuple[dict[Hashable, int], bool]:
        """How many of each group's waiting calls the target's next step takes, new prompts' first; whether it has no
        room for more."""
        room = self._limits.room("target", sum(group.members for group in groups.values()))
        counts: dict[Hashable, int] = {}
        left = False
        for key, group in groups.items():
            rows = group.waiting["target"]
            rows.sort(key=lambda row: not row.call.first)
            if count := room.take([row.call for row in rows]):
                counts[key] = count
            left |= count < len(rows)
        return counts, left or room.full


def in_flight(groups: dict[Hashable, Group[S]]) -> set[int]:
    """The target's planned steps that are not over."""
    return {batch.step for group in groups.values() for batch in group.in_flight["target"] if batch.step}
