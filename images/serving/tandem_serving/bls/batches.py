"""Calls that wait, and the batches that they become."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from tandem_serving.bls.calls import Call, Role
from tandem_serving.bls.step_limits import StepLimits

S = TypeVar("S")
Via = Literal["engine", "round", "join", "stream"]
Route = Literal["draft", "target", "round", "join", "stream"]


class BatchKey(NamedTuple):
    """Sequences of equal key can share engine calls. `whole_rounds`: the server may draft and verify for them at
    once."""

    engine_inputs: Hashable
    whole_rounds: bool


class Row(NamedTuple, Generic[S]):
    """A sequence's waiting call. Calls with equal `key` can share one engine call, unless `own`.

    `stream`: a number to read its tokens by while it runs, or 0. `again`: it was asked for before, and was late.
    """

    sequence: S
    call: Call
    key: Hashable
    own: bool = False
    stream: int = 0
    again: bool = False


@dataclass(eq=False)
class Batch(Generic[S]):
    """One engine call. `shared`: it counts among its group's batches in flight, and `makes_way` for others once it is
    answered, before its sequences ask for more.
    `step`: batches of one number are to be in one step of the target; 0: that is not planned.

    `via`: it goes to the engine; or drafts are verified at once, in the server; or it joins such a verification; or
    its tokens are read while it runs.
    `void`: all requests were ended since it was made, and nothing is known of it any more.
    """

    role: Role
    rows: list[Row[S]]
    shared: bool
    makes_way: bool = False
    step: int = 0
    released: bool = False
    via: Via = "engine"
    void: bool = False

    @property
    def by_itself(self) -> bool:
        """Whether it is of one sequence, and joins no others."""
        return len(self.rows) == 1 and self.via in ("engine", "stream")

    @property
    def route(self) -> Route:
        """Where it goes."""
        return self.role if self.via == "engine" else self.via


@dataclass
class Group(Generic[S]):
    """Calls that can share engine calls, of so many `members`: those that wait, and the shared batches in flight."""

    key: Hashable
    limits: StepLimits
    members: int = 0
    waiting: dict[Role, list[Row[S]]] = field(default_factory=lambda: {"draft": [], "target": []})
    in_flight: dict[Role, list[Batch[S]]] = field(default_factory=lambda: {"draft": [], "target": []})

    @property
    def over(self) -> bool:
        """Whether nothing is left of it."""
        return not any((self.members, *self.in_flight.values(), *self.waiting.values()))

    def take(
        self,
        role: Role,
        most: int | None = None,
        *,
        makes_way: bool = False,
        via: Via = "engine",
    ) -> list[Batch[S]]:
        """A shared batch of at most `most` waiting calls (None: of all); more than one engine call where the engine
        takes fewer rows."""
        waiting = self.waiting[role]
        rows, self.waiting[role] = waiting[:most], waiting[len(waiting[:most]) :]
        batches = []
        while rows:
            count = self.limits.room(role).take([row.call for row in rows])
            batches.append(Batch(role, rows[:count], shared=True, makes_way=makes_way, via=via))
            rows = rows[count:]
        self.in_flight[role] += batches
        return batches

    def longest(self, rows: int) -> list[Call]:
        """The longest of its calls, waiting or in flight, as many as a batch has."""
        of_batches = (batch.rows for batches in self.in_flight.values() for batch in batches)
        calls = [row.call for rows in (*self.waiting.values(), *of_batches) for row in rows]
        return sorted(calls, key=lambda call: -len(call.ids))[:rows]
