"""The schedule: which waiting engine calls start now, and which of them together. Pure.

Calls that an engine can take together (equal tensor names and shapes: `key`) form a cohort. A *wave* is one
engine call with a row for each of a cohort's waiting sequences: the call's overhead is then paid once, and
the engine sees its batch at one step's beginning. In which order they go is the policy:

- lock-step: one wave is in flight; all sequences draft, then all are verified; engines that share a device;
- ahead: one verification is in flight; whoever needs a draft gets it at once, and what is being verified is drafted
  on meanwhile; few sequences, engines on devices of their own;
- alternating: two waves, one half drafts while the other is verified; many sequences, engines on devices of their
  own; each engine may have the second one's wave in its queue.

Where the server makes whole rounds by itself (images/serving/collector/rounds.cpp), one round is in flight instead of
a wave, or two, and calls of the target that come meanwhile join a verification there. Not so where drafts are made
ahead.

Where `rows` is 1, each sequence goes on its own and the engine's in-flight batching merges what it can.

What would hold up the others never joins a wave: the target alone for several tokens, and calls that failed
or timed out with others. They start at once, by themselves. So does a new prompt's first call where a wave is in
the target's queue already: the engine takes both into its next step.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from tandem_serving.bls.calls import Call, Role, ServerRound

# Seconds within which the answers of calls come that were verified together; one that is lost holds up nobody.
TOGETHER = 0.01

S = TypeVar("S")
Overlap = Literal["lock-step", "ahead", "alternating"]
Via = Literal["engine", "round", "join"]
Route = Literal["draft", "target", "round", "join"]


class Row(NamedTuple, Generic[S]):
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
    """One engine call: a row a turn. `wave`: it has a place in its cohort's lane, `queued`: maybe behind another.

    `via`: it goes to the engine; or drafts are verified at once, in the server; or it joins such a verification.
    `void`: all requests were ended since it was made, and nothing is known of it any more.
    """

    role: Role
    turns: list[Row[S]]
    wave: bool
    queued: bool = False
    released: bool = False
    via: Via = "engine"
    void: bool = False

    @property
    def lane(self) -> Route:
        """Where it goes."""
        return self.role if self.via == "engine" else self.via


@dataclass
class _Cohort(Generic[S]):
    members: int = 0
    waiting: dict[Role, list[Row[S]]] = field(default_factory=lambda: {"draft": [], "target": []})
    ahead: list[Row[S]] = field(default_factory=list)
    flying: dict[Role, int] = field(default_factory=lambda: {"draft": 0, "target": 0})


class _Group(NamedTuple):
    """Calls that were verified together: so many are still to land, which is waited for until then."""

    left: int
    until: float


class Schedule(Generic[S]):
    """Not thread-safe. `order(n)` says how a cohort of n sequences goes; where that is "ahead", `hold(key)` whether
    its verification waits for drafts that are almost done; otherwise `in_rounds(key)` whether the server makes its
    rounds."""

    def __init__(
        self,
        rows: int,
        order: Callable[[int], Overlap],
        hold: Callable[[Hashable], bool] = lambda key: False,
        in_rounds: Callable[[Hashable], bool] = lambda key: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._order = order
        self._hold = hold
        self._in_rounds = in_rounds
        self._clock = clock
        self._awaited: dict[int, _Group] = {}
        self._cohorts: dict[Hashable, _Cohort[S]] = defaultdict(_Cohort)
        self._own: list[Row[S]] = []

    def ask(self, turn: Row[S]) -> None:
        """Put a call in line."""
        if turn.own or self._rows == 1:
            self._own.append(turn)
        elif turn.ahead:
            self._cohorts[turn.key].ahead.append(turn)
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
        """A batch is answered but not settled: of alternating waves the other one can start now.

        Otherwise it cannot: the sequences of this batch are to be in the next wave.
        """
        if self._flies(batch) and self._order(self._cohorts[batch.turns[0].key].members) == "alternating":
            self._land(batch)

    def finish(self, batch: Batch[S]) -> None:
        """A batch is over, or given up: its lane is free."""
        if self._flies(batch):
            self._land(batch)

    def landed(self, served: ServerRound | None) -> None:
        """A call that the server verified is over, given up or not: who was verified together goes on together."""
        if served is None or served.members == 1:
            return
        group = self._awaited.pop(served.group, _Group(served.members, self._clock() + TOGETHER))
        if group.left > 1:
            self._awaited[served.group] = group._replace(left=group.left - 1)

    def _flies(self, batch: Batch[S]) -> bool:
        return batch.wave and not batch.released

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
        for key, cohort in self._cohorts.items():
            for role, turns in cohort.waiting.items():
                cohort.waiting[role] = [turn for turn in turns if alive(turn.sequence)]
            batches += self._waves(key, cohort)
            ahead = [turn for turn in cohort.ahead if alive(turn.sequence)]
            batches += [Batch("draft", part, wave=False) for part in self._parts(ahead)]
            cohort.ahead.clear()
        for key, cohort in list(self._cohorts.items()):
            self._forget(key, cohort)
        return batches

    def _waves(self, key: Hashable, cohort: _Cohort[S]) -> list[Batch[S]]:
        waiting, flying = cohort.waiting, cohort.flying
        order = self._order(cohort.members)
        if order == "ahead":
            begins = waiting["target"] and not flying["target"] and not self._hold(key)
            drafts = self._take(cohort, "draft", len(waiting["draft"]))
            return drafts + (self._take(cohort, "target", len(waiting["target"])) if begins else [])
        roles: list[Role] = sorted(waiting, key=lambda role: -len(waiting[role]))
        idle = not any(flying.values())
        if self._in_rounds(key):
            return self._server_round(cohort, order)
        if order == "lock-step":
            # The phase in which more sequences wait goes first; the others join them in the next.
            return self._take(cohort, roles[0], len(waiting[roles[0]])) if idle else []
        # A wave may queue behind the one in flight: the engine then goes from one to the other without us. A
        # small one waits for more, or it would take a step of the target for itself, round after round.
        half, least = -(-cohort.members // 2), cohort.members / 3
        early = self._first_calls(cohort)
        ready = [role for role in roles if idle or (flying[role] < 2 and len(waiting[role]) >= least)]
        return early + [batch for role in ready for batch in self._take(cohort, role, half, queued=True)]

    def _server_round(self, cohort: _Cohort[S], order: Overlap) -> list[Batch[S]]:
        """Drafts that wait, to be verified in the server, where there is room for a round; the target's at once."""
        waiting, flying, now = cohort.waiting, cohort.flying["draft"], self._clock()
        self._awaited = {number: group for number, group in self._awaited.items() if now < group.until}
        many = order == "alternating" and flying == 1 and len(waiting["draft"]) >= cohort.members / 3
        begins = not self._awaited and (not flying or many)
        most = -(-cohort.members // 2) if order == "alternating" else len(waiting["draft"])
        batches = self._take(cohort, "draft", most, via="round") if begins else []
        # Verifications of drafts from before there were rounds; made-up tokens fill up what has none.
        drafted = [turn for turn in waiting["target"] if turn.call.draft_ids]
        waiting["target"] = [turn for turn in waiting["target"] if not turn.call.draft_ids]
        batches += self._take(cohort, "target", len(waiting["target"]), via="join")
        waiting["target"] = drafted
        return batches + self._take(cohort, "target", len(drafted))

    def _first_calls(self, cohort: _Cohort[S]) -> list[Batch[S]]:
        """New prompts' calls while one wave runs and one is in the engine's queue: they join the latter's step."""
        waiting = cohort.waiting["target"]
        if cohort.flying["target"] < 2 or not any(turn.call.first for turn in waiting):
            return []
        cohort.waiting["target"] = [turn for turn in waiting if not turn.call.first]
        return [Batch("target", [turn], wave=False) for turn in waiting if turn.call.first]

    def _take(
        self, cohort: _Cohort[S], role: Role, most: int, queued: bool = False, via: Via = "engine"
    ) -> list[Batch[S]]:
        """A wave of at most `most` turns; more than one engine call where the engine takes fewer rows."""
        turns, cohort.waiting[role] = cohort.waiting[role][:most], cohort.waiting[role][most:]
        parts = self._parts(turns)
        cohort.flying[role] += len(parts)
        return [Batch(role, part, wave=True, queued=queued, via=via) for part in parts]

    def _parts(self, turns: list[Row[S]]) -> list[list[Row[S]]]:
        return [turns[i : i + self._rows] for i in range(0, len(turns), self._rows)]

    def _forget(self, key: Hashable, cohort: _Cohort[S]) -> None:
        if not any((cohort.members, *cohort.flying.values(), *cohort.waiting.values(), cohort.ahead)):
            del self._cohorts[key]
