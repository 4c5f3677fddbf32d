"""The calls that wait, and which of them start now, by a strategy: `start` chooses it. Pure.

Calls that an engine can take together (equal tensor names and shapes: `key`) form a group. What would hold up the
others is in none: the target alone for several tokens, and calls that failed or timed out with others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic

from tandem_serving.bls.batches import Batch, BatchKey, Group, Row, S
from tandem_serving.bls.calls import Call, Role
from tandem_serving.bls.step_limits import UNLIMITED, StepLimits, tokens_of
from tandem_serving.bls.strategies import per_sequence
from tandem_serving.bls.strategies.filled_steps import FilledSteps
from tandem_serving.bls.strategies.server_rounds import ServerRounds
from tandem_serving.bls.strategies.waves import Waves


class Schedule(Generic[S]):
    """Not thread-safe. `micro_batches(n)`: into how many n sequences of a group are divided; `in_server`: whether
    the server can make rounds."""

    def __init__(
        self,
        limits: StepLimits,
        micro_batches: Callable[[int], int] = lambda sequences: 1,
        in_server: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server_rounds = ServerRounds(micro_batches, clock)
        self._limits = limits
        self._micro_batches = micro_batches
        self._in_server = in_server
        self._waves = Waves(micro_batches)
        self._filled_steps: FilledSteps[S] = FilledSteps(limits)
        self._groups: dict[Hashable, Group[S]] = {}
        self._alone: list[Row[S]] = []

    def ask(self, row: Row[S]) -> None:
        """Queue a call."""
        if row.own:
            self._alone.append(row)
        else:
            self._group(row.key).waiting[row.call.role].append(row)

    def withdraw(self, role: Role) -> list[Row[S]]:
        """Take back the calls of an engine that wait to start."""
        rows = [row for row in self._alone if row.call.role == role]
        self._alone = [row for row in self._alone if row.call.role != role]
        for group in self._groups.values():
            rows += group.waiting[role]
            group.waiting[role] = []
        return rows

    def enter(self, key: Hashable) -> None:
        """A sequence with calls of this key has begun."""
        self._group(key).members += 1

    def leave(self, key: Hashable) -> None:
        """A sequence of this key is over."""
        self._groups[key].members -= 1
        self._forget()

    def release(self, batch: Batch[S]) -> None:
        """A batch is answered but not settled: others can start now if it makes way. Otherwise its sequences are to
        be in the next batch."""
        if batch.makes_way:
            self.finish(batch)

    def finish(self, batch: Batch[S]) -> None:
        """A batch is over, or given up: its engine is free for the next."""
        if batch.shared and not batch.released:
            batch.released = True
            self._groups[batch.rows[0].key].in_flight[batch.role].remove(batch)
            self._forget()

    def start(self, alive: Callable[[S], bool]) -> list[Batch[S]]:
        """The batches that start now; rows of sequences that are not `alive` are dropped."""
        for group in self._groups.values():
            for role, rows in group.waiting.items():
                group.waiting[role] = [row for row in rows if alive(row.sequence)]
        batches = per_sequence.start(row for row in self._alone if alive(row.sequence))
        self._alone.clear()
        if self._batches_fit():
            for group in self._groups.values():
                in_server = self._in_server and isinstance(group.key, BatchKey) and group.key.whole_rounds
                batches += (self.server_rounds if in_server else self._waves).start(group)
        else:
            batches += self._filled_steps.start(self._groups)
        self._forget()
        return batches

    def _batches_fit(self) -> bool:
        """Whether a step of either engine takes a batch of each group."""
        if self._limits.tokens >= UNLIMITED:
            return True
        calls: list[Call] = []
        for group in self._groups.values():
            size = -(-group.members // self._micro_batches(group.members))
            calls += group.longest(min(self._limits.rows, size))
        return tokens_of(calls) <= self._limits.tokens

    def _group(self, key: Hashable) -> Group[S]:
        return self._groups.setdefault(key, Group(key, self._limits))

    def _forget(self) -> None:
        """Groups of which nothing is left."""
        self._groups = {key: group for key, group in self._groups.items() if not group.over}
