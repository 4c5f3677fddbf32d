"""The engines' cost model, pure: steps of a fixed time plus time per sequence and token, in-flight batching.

A row makes a token a step; a verification is one step. What its context has beyond full cached blocks is prefilled
when it enters. Which rows a step takes is TensorRT-LLM's rule (capacityScheduler.cpp, GUARANTEED_NO_EVICT, then
microBatchScheduler.cpp, read on 2026-11-26): those that generate, a token each; then contexts in the order in which
they came, until the first that does not fit. All of a context counts, draft tokens too, also what is reused.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

BLOCK = 32
CACHED_SEQUENCES = 4096
UNLIMITED = 1 << 60


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
class StepLimits:
    """What an engine takes into a step: `rows` (its max_batch_size) and `tokens` (its max_num_tokens); None: all.

    `chunked`: contexts may enter in pieces (enable_chunked_context).
    """

    rows: int | None = None
    tokens: int | None = None
    chunked: bool = False

    def fit(self, length: int) -> int:
        """Contexts of so many tokens that enter in one step: one at least."""
        return max(1, min(self.rows or UNLIMITED, (self.tokens or UNLIMITED) // length))


NO_LIMITS = StepLimits()


@dataclass(frozen=True)
class Pair:
    """Both engines' costs, whether they share one device (then their steps exclude each other), and what each takes
    into a step."""

    draft: Costs = field(default_factory=lambda: Costs(2.0, per_prefill_token=0.0007))
    target: Costs = field(default_factory=lambda: Costs(12.0, per_prefill_token=0.0035))
    shared: bool = False
    draft_limits: StepLimits = NO_LIMITS
    target_limits: StepLimits = NO_LIMITS

    def verification_per_token(self) -> "Pair":
        """The same with a verification that costs v1 for each of a sequence's k + 1 tokens."""
        return replace(self, target=replace(self.target, per_draft_token=self.target.per_sequence))


class PrefixCache:
    """How many tokens of each sequence an engine holds, in full blocks; the least recently used go."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[int, int] = OrderedDict()

    def reused(self, key: int, length: int) -> int:
        """Tokens of a context of `length` tokens that need not be computed (the last always is)."""
        return min(self._tokens.get(key, 0), length - 1) // BLOCK * BLOCK

    def store(self, key: int, tokens: int) -> None:
        """Remember that the first `tokens` tokens are held."""
        self._tokens[key] = tokens
        self._tokens.move_to_end(key)
        if len(self._tokens) > CACHED_SEQUENCES:
            self._tokens.popitem(last=False)


@dataclass(slots=True, eq=False)
class Row:
    """A sequence in an engine: a context of `length` tokens, `draft_tokens` to verify, and then a token a step.

    `position`: tokens of the context that are computed or reused; `chunk`: those of the next step; `runs`: it is in
    that step; `made`: tokens so far.
    """

    key: int
    length: int
    steps: int = 1
    draft_tokens: int = 0
    position: int = 0
    chunk: int = 0
    runs: bool = False
    made: int = 0

    @property
    def generates(self) -> bool:
        """Whether its context is computed, and tokens are to come."""
        return self.position == self.length and not self.done

    @property
    def done(self) -> bool:
        """Whether it has all its tokens."""
        return self.made == self.steps

    def enter(self, cache: PrefixCache, chunk: int) -> None:
        """Compute so many tokens of the context in the next step. What is reused is known only now: the piece moves
        behind it, and ends with a block (llmRequest.h, setPrepopulatedPromptLen)."""
        if self.position == 0:
            self.position = cache.reused(self.key, self.length)
            end = self.position + chunk
            chunk = end // BLOCK * BLOCK - self.position if self.position and end < self.length else chunk
        self.chunk, self.runs = min(chunk, self.length - self.position), True

    def end_step(self) -> bool:
        """Take what the step made; whether that is a token."""
        if not self.runs:
            return False
        self.position, self.chunk = self.position + self.chunk, 0
        self.made += self.position == self.length
        return self.position == self.length


def choose(rows: Sequence[Row], limits: StepLimits, cache: PrefixCache) -> None:
    """Decide which rows are in the next step; `rows` in the order in which they came."""
    for row in rows:
        row.runs = row.generates
    generating = sum(row.runs for row in rows)
    room, tokens = ((limit or UNLIMITED) - generating for limit in (limits.rows, limits.tokens))
    contexts = [row for row in rows if row.position < row.length][:room]
    if limits.chunked:
        for row, chunk in zip(contexts, _chunks(contexts, tokens, limits.tokens or UNLIMITED), strict=True):
            if chunk:
                row.enter(cache, chunk)
        return
    for row in contexts:
        tokens -= row.length + row.draft_tokens
        if tokens < 0:
            break
        row.enter(cache, row.length)


def _chunks(contexts: Sequence[Row], tokens: int, longest: int) -> list[int]:
    """Tokens that each context gets of a step. Where not all fit, draft tokens are dropped that do not fit into the
    last block of their context, or into the step (fitDraftTokens)."""
    left = [row.length - row.position for row in contexts]
    whole = [length + row.draft_tokens for length, row in zip(left, contexts, strict=True)]
    if sum(whole) <= tokens and max(whole, default=0) <= longest:
        return left
    room, chunks = tokens, []
    for length in left:
        chunk = min(room, length)
        chunks.append(chunk if chunk == length else chunk // BLOCK * BLOCK)
        room -= chunks[-1]
    for row, length, chunk in zip(contexts, left, chunks, strict=True):
        if chunk == length and row.draft_tokens:
            space = min(-chunk % BLOCK, longest - chunk, room)
            room -= space
            row.draft_tokens = min(row.draft_tokens, space)
    return chunks


def step_seconds(rows: Iterable[Row], costs: Costs) -> float:
    """What the step takes."""
    running = [row for row in rows if row.runs]
    last = [row for row in running if row.chunk and row.position + row.chunk == row.length]
    # The last token of a context is the step's own.
    prefill = sum(row.chunk for row in running) - len(last)
    return costs.step(len(running), sum(row.draft_tokens for row in last), prefill)
