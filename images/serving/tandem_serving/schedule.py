"""The schedule: which waiting engine calls start now, and which of them together. Pure.

Calls that an engine can take together (equal tensor names and shapes: `key`) form a cohort. A *wave* is one
engine call with a row for each of a cohort's waiting sequences: the call's overhead is then paid once, and
the engine sees its batch at one step's beginning. How many waves are in flight is the policy:

- one (lock-step): all sequences draft, then all are verified; engines that share a device, or few sequences;
- two (alternating cohorts): one half drafts while the other is verified; engines on devices of their own;
  each engine may have the second one's wave in its queue;
- none: `rows` is 1, each sequence goes on its own and the engine's in-flight batching merges what it can.

What would hold up the others never joins a wave: the target alone for several tokens, and calls that failed
or timed out with others. They start at once, by themselves. So does a new prompt's first call where a wave is in
the target's queue already: the engine takes both into its next step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tandem_serving.loop import Call, Role

S = TypeVar("S")


class Turn(NamedTuple, Generic[S]):
    """A sequence's waiting call. Calls with equal `key` can share one engine call, unless `own`.

    `ahead`: nothing waits for its answer.
    """

    sequence: S
    call: Call
    key: Hashable
    own: bool = False
    ahead: bool = False


@dataclass(eq=False)
class Batch(Generic[S]):
    """One engine call: a row a turn. `wave`: it holds a place in its cohort's lane."""

    role: Role
    turns: list[Turn[S]]
    wave: bool
    released: bool = False


@dataclass
class _Cohort(Generic[S]):
    members: int = 0
    waiting: dict[Role, list[Turn[S]]] = field(default_factory=lambda: {"draft": [], "target": []})
    flying: dict[Role, int] = field(default_factory=lambda: {"draft": 0, "target": 0})


class Schedule(Generic[S]):
    """Not thread-safe. `slots(n)` says how many waves a cohort of n sequences has in flight: 1 or 2."""

    def __init__(self, rows: int, slots: Callable[[int], int]) -> None:
        self._rows = rows
        self._slots = slots
        self._cohorts: dict[Hashable, _Cohort[S]] = defaultdict(_Cohort)
        self._own: list[Turn[S]] = []

    def ask(self, turn: Turn[S]) -> None:
        """Put a call in line."""
        if turn.own or self._rows == 1:
            self._own.append(turn)
        else:
            self._cohorts[turn.key].waiting[turn.call.role].append(turn)

    def enter(self, key: Hashable) -> None:
        """A sequence with calls of this key has begun."""
        self._cohorts[key].members += 1

    def leave(self, key: Hashable) -> None:
        """A sequence of this key is over."""
        cohort = self._cohorts[key]
        cohort.members -= 1
        self._forget(key, cohort)

    def release(self, batch: Batch[S]) -> None:
        """A batch is answered but not settled: with two cohorts the other one's wave can start now.

        In lock-step it cannot: the sequences of this batch are to be in the next wave.
        """
        if batch.wave and self._slots(self._cohorts[batch.turns[0].key].members) > 1:
            self._land(batch)

    def finish(self, batch: Batch[S]) -> None:
        """A batch is over, or given up: its lane is free."""
        if batch.wave and not batch.released:
            self._land(batch)

    def _land(self, batch: Batch[S]) -> None:
        key = batch.turns[0].key
        batch.released = True
        self._cohorts[key].flying[batch.role] -= 1
        self._forget(key, self._cohorts[key])

    def start(self, alive: Callable[[S], bool]) -> list[Batch[S]]:
        """The batches that start now; turns of sequences that are not `alive` are dropped."""
        own = [turn for turn in self._own if alive(turn.sequence)]
        self._own.clear()
        batches = [Batch(turn.call.role, [turn], wave=False) for turn in own]
        for cohort in self._cohorts.values():
            for role, turns in cohort.waiting.items():
                cohort.waiting[role] = [turn for turn in turns if alive(turn.sequence)]
            batches += self._waves(cohort)
        return batches

    def _waves(self, cohort: _Cohort[S]) -> list[Batch[S]]:
        waiting, flying = cohort.waiting, cohort.flying
        roles: list[Role] = sorted(waiting, key=lambda role: -len(waiting[role]))
        idle = not any(flying.values())
        if self._slots(cohort.members) == 1:
            # The phase in which more sequences wait goes first; the others join them in the next.
            return self._take(cohort, roles[0], len(waiting[roles[0]])) if idle else []
        # A wave may queue behind the one in flight: the engine then goes from one to the other without us. A
        # small one waits for more, or it would take a step of the target for itself, round after round.
        half, least = -(-cohort.members // 2), cohort.members / 3
        early = self._first_calls(cohort)
        ready = [role for role in roles if idle or (flying[role] < 2 and len(waiting[role]) >= least)]
        return early + [batch for role in ready for batch in self._take(cohort, role, half)]

    def _first_calls(self, cohort: _Cohort[S]) -> list[Batch[S]]:
        """New prompts' calls while one wave runs and one is in the engine's queue: they join the latter's step."""
        waiting = cohort.waiting["target"]
        if cohort.flying["target"] < 2 or not any(turn.call.first for turn in waiting):
            return []
        cohort.waiting["target"] = [turn for turn in waiting if not turn.call.first]
        return [Batch("target", [turn], wave=False) for turn in waiting if turn.call.first]

    def _take(self, cohort: _Cohort[S], role: Role, most: int) -> list[Batch[S]]:
        """A wave of at most `most` turns; more than one engine call where the engine takes fewer rows."""
        turns, cohort.waiting[role] = cohort.waiting[role][:most], cohort.waiting[role][most:]
        parts = [turns[i : i + self._rows] for i in range(0, len(turns), self._rows)]
        cohort.flying[role] += len(parts)
        return [Batch(role, part, wave=True) for part in parts]

    def _forget(self, key: Hashable, cohort: _Cohort[S]) -> None:
        if not cohort.members and not any(cohort.flying.values()) and not any(cohort.waiting.values()):
            del self._cohorts[key]
