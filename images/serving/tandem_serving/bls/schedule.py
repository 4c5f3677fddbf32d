"""The schedule: which waiting engine calls start now, and which of them together. Pure.

Calls that an engine can take together (equal tensor names and shapes: `key`) form a group. A *shared* batch is one
engine call with a row for each of a group's waiting sequences: the call's overhead is then paid once, and the engine
has all of them in one step. How the calls of a group overlap (`Overlap`) is the policy's choice:

- none: one batch is in flight; all sequences draft, then all are verified; engines that share a device;
- draft-ahead: one verification is in flight; a sequence that needs a draft gets it at once, and those that are being
  verified are drafted ahead; few sequences, engines on devices of their own;
- micro-batches: two batches are in flight, one half of the sequences drafts while the other is verified; many
  sequences, engines on devices of their own; each engine may have the second batch in its queue.

Where the server makes whole rounds by itself (images/serving/collector/rounds.cpp), one round is in flight instead of
a batch, or two, and calls of the target that come meanwhile join a verification there. Not so where drafts are made
ahead.

Where a step of an engine does not take such batches (`StepLimits`: texts are long), none of these: a call whose rows
take several steps would wait for its last row. Drafts start at once, in batches that fit; the target has one step in
flight, filled with what waits longest, and one more in its queue when that is full, too.

Where a call has one row, each sequence goes on its own and the engine's in-flight batching merges what it can.

What would hold up the others never joins a shared batch: the target alone for several tokens, and calls that failed
or timed out with others. They start at once, by themselves. So does a new prompt's first call where a batch is in
the target's queue already: the engine takes both into its next step.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from tandem_serving.bls.calls import Call, Role, ServerRound
from tandem_serving.bls.step_limits import UNLIMITED, StepLimits, tokens_of

# Seconds within which the answers of calls come that were verified together; one that is lost holds up no others.
TOGETHER = 0.01

S = TypeVar("S")
Overlap = Literal["none", "draft-ahead", "micro-batches"]
Via = Literal["engine", "round", "join", "stream"]
Route = Literal["draft", "target", "round", "join", "stream"]


class Row(NamedTuple, Generic[S]):
    """A sequence's waiting call. Calls with equal `key` can share one engine call, unless `own`.

    `ahead`: nothing waits for its answer. `stream`: a number to read its tokens by while it runs, or 0.
    """

    sequence: S
    call: Call
    key: Hashable
    own: bool = False
    ahead: bool = False
    stream: int = 0


@dataclass(eq=False)
class Batch(Generic[S]):
    """One engine call. `shared`: it counts among its group's batches in flight, `queued`: maybe behind another.
    `step`: batches of one number are to be in one step of the target; 0: that is not planned.

    `via`: it goes to the engine; or drafts are verified at once, in the server; or it joins such a verification; or
    its tokens are read while it runs.
    `void`: all requests were ended since it was made, and nothing is known of it any more.
    """

    role: Role
    rows: list[Row[S]]
    shared: bool
    queued: bool = False
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
class _Group(Generic[S]):
    members: int = 0
    waiting: dict[Role, list[Row[S]]] = field(default_factory=lambda: {"draft": [], "target": []})
    ahead: list[Row[S]] = field(default_factory=list)
    in_flight: dict[Role, list[Batch[S]]] = field(default_factory=lambda: {"draft": [], "target": []})

    def longest(self, rows: int) -> list[Call]:
        """The longest of its calls, waiting or in flight, as many as a batch has."""
        of_batches = (batch.rows for batches in self.in_flight.values() for batch in batches)
        calls = [row.call for rows in (*self.waiting.values(), *of_batches) for row in rows]
        return sorted(calls, key=lambda call: -len(call.ids))[:rows]


class _PendingRound(NamedTuple):
    """Calls that were verified together: so many are still to land, which is waited for until then."""

    left: int
    until: float


class Schedule(Generic[S]):
    """Not thread-safe. `overlap(n)`: how the calls of n sequences overlap; where that is "draft-ahead", `hold(key)`:
    whether their verification waits for drafts that are almost done; otherwise `in_rounds(key)`: whether the server
    makes their rounds."""

    def __init__(
        self,
        limits: StepLimits,
        overlap: Callable[[int], Overlap],
        hold: Callable[[Hashable], bool] = lambda key: False,
        in_rounds: Callable[[Hashable], bool] = lambda key: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._overlap = overlap
        self._hold = hold
        self._in_rounds = in_rounds
        self._clock = clock
        self._awaited: dict[int, _PendingRound] = {}
        self._steps: Counter[int] = Counter()  # the target's planned ones in flight: their batches
        self._planned = 0
        self._groups: dict[Hashable, _Group[S]] = defaultdict(_Group)
        self._own: list[Row[S]] = []

    def ask(self, row: Row[S]) -> None:
        """Queue a call."""
        if row.own or self._limits.rows == 1:
            self._own.append(row)
        elif row.ahead:
            self._groups[row.key].ahead.append(row)
        else:
            self._groups[row.key].waiting[row.call.role].append(row)

    def enter(self, key: Hashable) -> None:
        """A sequence with calls of this key has begun."""
        self._groups[key].members += 1

    def leave(self, key: Hashable) -> None:
        """A sequence of this key is over."""
        group = self._groups[key]
        group.members -= 1
        self._forget(key, group)

    def release(self, batch: Batch[S]) -> None:
        """A batch is answered but not settled: of two micro-batches the other one can start now.

        Otherwise it cannot: the sequences of this batch are to be in the next batch.
        """
        if not self._is_in_flight(batch):
            return
        if batch.step or self._overlap(self._groups[batch.rows[0].key].members) == "micro-batches":
            self._free(batch)

    def finish(self, batch: Batch[S]) -> None:
        """A batch is over, or given up: its engine is free for the next."""
        if self._is_in_flight(batch):
            self._free(batch)

    def verified_in_server(self, server_round: ServerRound | None) -> None:
        """A call that the server verified is over, given up or not: who was verified together goes on together."""
        if server_round is None or server_round.members == 1:
            return
        pending = self._awaited.pop(server_round.group, _PendingRound(server_round.members, self._clock() + TOGETHER))
        if pending.left > 1:
            self._awaited[server_round.group] = pending._replace(left=pending.left - 1)

    def _is_in_flight(self, batch: Batch[S]) -> bool:
        return batch.shared and not batch.released

    def _free(self, batch: Batch[S]) -> None:
        key = batch.rows[0].key
        batch.released = True
        self._groups[key].in_flight[batch.role].remove(batch)
        self._steps -= Counter([batch.step] if batch.step else [])
        self._forget(key, self._groups[key])

    def start(self, alive: Callable[[S], bool]) -> list[Batch[S]]:
        """The batches that start now; rows of sequences that are not `alive` are dropped."""
        own = [row for row in self._own if alive(row.sequence)]
        self._own.clear()
        batches: list[Batch[S]] = [
            Batch(row.call.role, [row], shared=False, via="stream" if row.stream else "engine") for row in own
        ]
        for group in self._groups.values():
            for role, rows in group.waiting.items():
                group.waiting[role] = [row for row in rows if alive(row.sequence)]
        if self._batches_fit():
            batches += [batch for key, group in self._groups.items() for batch in self._shared_batches(key, group)]
        else:
            batches += self._filled_steps()
        for group in self._groups.values():
            ahead = [row for row in group.ahead if alive(row.sequence)]
            batches += [Batch("draft", part, shared=False) for part in self._parts("draft", ahead)]
            group.ahead.clear()
        for key, group in list(self._groups.items()):
            self._forget(key, group)
        return batches

    def _shared_batches(self, key: Hashable, group: _Group[S]) -> list[Batch[S]]:
        waiting, in_flight = group.waiting, group.in_flight
        overlap = self._overlap(group.members)
        if overlap == "draft-ahead":
            begins = waiting["target"] and not in_flight["target"] and not self._hold(key)
            drafts = self._take(group, "draft", len(waiting["draft"]))
            return drafts + (self._take(group, "target", len(waiting["target"])) if begins else [])
        roles: list[Role] = sorted(waiting, key=lambda role: -len(waiting[role]))
        idle = not any(in_flight.values())
        if self._in_rounds(key):
            return self._server_round(group, overlap)
        if overlap == "none":
            # The phase in which more sequences wait goes first; the others join them in the next.
            return self._take(group, roles[0], len(waiting[roles[0]])) if idle else []
        # A batch may queue behind the one in flight: the engine then goes from one to the other without us. A
        # small one waits for more, or it would take a step of the target for itself, round after round.
        half, least = -(-group.members // 2), group.members / 3
        early = self._first_calls(group)
        ready = [role for role in roles if idle or (len(in_flight[role]) < 2 and len(waiting[role]) >= least)]
        return early + [batch for role in ready for batch in self._take(group, role, half, queued=True)]

    def _server_round(self, group: _Group[S], overlap: Overlap) -> list[Batch[S]]:
        """Drafts that wait, to be verified in the server, where there is room for a round; the target's at once."""
        waiting, in_flight, now = group.waiting, len(group.in_flight["draft"]), self._clock()
        self._awaited = {number: pending for number, pending in self._awaited.items() if now < pending.until}
        many = overlap == "micro-batches" and in_flight == 1 and len(waiting["draft"]) >= group.members / 3
        begins = not self._awaited and (not in_flight or many)
        most = -(-group.members // 2) if overlap == "micro-batches" else len(waiting["draft"])
        batches = self._take(group, "draft", most, via="round") if begins else []
        # Verifications of drafts from before there were rounds; made-up tokens fill up what has none.
        drafted = [row for row in waiting["target"] if row.call.draft_ids]
        waiting["target"] = [row for row in waiting["target"] if not row.call.draft_ids]
        batches += self._take(group, "target", len(waiting["target"]), via="join")
        waiting["target"] = drafted
        return batches + self._take(group, "target", len(drafted))

    def _first_calls(self, group: _Group[S]) -> list[Batch[S]]:
        """New prompts' calls while one batch runs and one is in the engine's queue: they join the latter's step."""
        waiting = group.waiting["target"]
        if len(group.in_flight["target"]) < 2 or not any(row.call.first for row in waiting):
            return []
        group.waiting["target"] = [row for row in waiting if not row.call.first]
        return [Batch("target", [row], shared=False) for row in waiting if row.call.first]

    def _batches_fit(self) -> bool:
        """Whether a step of either engine takes a batch of each group."""
        if self._limits.tokens >= UNLIMITED:
            return True
        calls: list[Call] = []
        for group in self._groups.values():
            halves = 2 if self._overlap(group.members) == "micro-batches" else 1
            calls += group.longest(min(self._limits.rows, -(-group.members // halves)))
        return tokens_of(calls) <= self._limits.tokens

    def _filled_steps(self) -> list[Batch[S]]:
        """All drafts; of the target's calls a step, where none is in flight, and one behind it, if nothing more would
        fit. An engine that is idle waits for drafts that are almost done, rather than make a step for few."""
        batches: list[Batch[S]] = []
        for group in self._groups.values():
            batches += self._take(group, "draft", len(group.waiting["draft"]))
        while len(self._steps) < 2:
            counts, full = self._fitting()
            if not counts or not (full or self._is_idle()):
                break
            self._planned += 1
            for key, count in counts.items():
                self._groups[key] = group = self._groups.pop(key)  # others come first in the next step
                for batch in self._take(group, "target", count, queued=True):
                    batch.step = self._planned
                    self._steps[batch.step] += 1
                    batches.append(batch)
        return batches

    def _is_idle(self) -> bool:
        return not self._steps and not any(self._hold(key) for key in self._groups)

    def _fitting(self) -> tuple[dict[Hashable, int], bool]:
        """How many of each group's waiting calls the target's next step takes, new prompts' first; whether it has no
        room for more."""
        room = self._limits.room("target", sum(group.members for group in self._groups.values()))
        counts: dict[Hashable, int] = {}
        left = False
        for key, group in self._groups.items():
            rows = group.waiting["target"]
            rows.sort(key=lambda row: not row.call.first)
            if count := room.take([row.call for row in rows]):
                counts[key] = count
            left |= count < len(rows)
        return counts, left or room.full

    def _take(
        self, group: _Group[S], role: Role, most: int, queued: bool = False, via: Via = "engine"
    ) -> list[Batch[S]]:
        """A shared batch of at most `most` rows; more than one engine call where the engine takes fewer rows."""
        rows, group.waiting[role] = group.waiting[role][:most], group.waiting[role][most:]
        batches = [Batch(role, part, shared=True, queued=queued, via=via) for part in self._parts(role, rows)]
        group.in_flight[role] += batches
        return batches

    def _parts(self, role: Role, rows: list[Row[S]]) -> list[list[Row[S]]]:
        parts = []
        while rows:
            count = self._limits.room(role).take([row.call for row in rows])
            parts.append(rows[:count])
            rows = rows[count:]
        return parts

    def _forget(self, key: Hashable, group: _Group[S]) -> None:
        if not any((group.members, *group.in_flight.values(), *group.waiting.values(), group.ahead)):
            del self._groups[key]
