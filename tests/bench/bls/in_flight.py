"""The engines' cost model, pure: steps of a fixed time plus time per sequence and token, in-flight batching.

A step runs all calls that were admitted before it began. A call makes a token a step for each of its rows;
a verification is one step. What a call's prompt has beyond full cached blocks is prefilled in its first step.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

BLOCK = 32
CACHED_SEQUENCES = 4096


@dataclass(frozen=True)
class Costs:
    """Milliseconds of a step: fixed, per sequence in it, per draft token verified and per prefilled token."""

    fixed: float
    per_sequence: float = 0.05
    per_draft_token: float = 0.0
    per_prefill_token: float = 0.0

    def step(self, sequences: int, draft_tokens: int = 0, prefill: int = 0) -> float:
        """Seconds of one step."""
        milliseconds = self.fixed + self.per_sequence * sequences
        return (milliseconds + self.per_draft_token * draft_tokens + self.per_prefill_token * prefill) * 1e-3


@dataclass(frozen=True)
class Pair:
    """Both engines' costs, whether they share one device (then their steps exclude each other), and how many rows
    each takes into a step, as an engine of that max_batch_size (None: all)."""

    draft: Costs = field(default_factory=lambda: Costs(2.0, per_prefill_token=0.0007))
    target: Costs = field(default_factory=lambda: Costs(12.0, per_prefill_token=0.0035))
    shared: bool = False
    batch: int | None = None

    def verification_per_token(self) -> "Pair":
        """The same with a verification that costs v1 for each of a sequence's k + 1 tokens."""
        return replace(self, target=replace(self.target, per_draft_token=self.target.per_sequence))


class PrefixCache:
    """How many tokens of each sequence an engine holds, in full blocks; the least recently used go."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[int, int] = OrderedDict()

    def missing(self, key: int, length: int) -> int:
        """Tokens to prefill before the next one can be made of `length` tokens (the last is the step's own)."""
        reused = min(self._tokens.get(key, 0), length - 1) // BLOCK * BLOCK
        return length - 1 - reused

    def store(self, key: int, tokens: int) -> None:
        """Remember that the first `tokens` tokens are held."""
        self._tokens[key] = tokens
        self._tokens.move_to_end(key)
        if len(self._tokens) > CACHED_SEQUENCES:
            self._tokens.popitem(last=False)


@dataclass(slots=True, eq=False)
class Call:
    """An engine call of one or more rows: `rows[i]` of them still generate at its step i."""

    rows: list[int]
    prefill: int = 0
    draft_tokens: int = 0
    steps: int = 0

    @property
    def done(self) -> bool:
        """Whether all rows are."""
        return self.steps == len(self.rows)


def rows_at(lengths: Iterable[int]) -> list[int]:
    """How many rows generate at each step, of rows with these numbers of tokens."""
    ordered = sorted(lengths)
    return [sum(length > step for length in ordered) for step in range(ordered[-1])]


C = TypeVar("C", bound=Call)


class InFlight(Generic[C]):
    """The calls in an engine: alternate `begin` and `end`, and `admit` between `end` and `begin`."""

    def __init__(self, costs: Costs) -> None:
        self.active: list[C] = []
        self._costs = costs

    def admit(self, call: C) -> None:
        """Let a call take part in the next step."""
        self.active.append(call)

    def begin(self) -> float:
        """Seconds that the next step takes."""
        sequences = draft_tokens = prefill = 0
        for call in self.active:
            sequences += call.rows[call.steps]
            if call.steps == 0:
                draft_tokens += call.draft_tokens
                prefill += call.prefill
        return self._costs.step(sequences, draft_tokens, prefill)

    def end(self) -> list[C]:
        """Finish the step: the calls that took part. Those that are done leave."""
        took_part = self.active
        for call in took_part:
            call.steps += 1
        self.active = [call for call in took_part if not call.done]
        return took_part
