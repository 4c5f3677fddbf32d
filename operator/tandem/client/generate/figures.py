"""From the chunks of a stream to the figures of a completion. Pure: times come in as numbers.

Definitions, used everywhere in this package:

- tokens/s: generated tokens over the seconds from sending the request to its last chunk, so the prompt's
  processing and any queueing count.
- target pass: one run of the target over the sequence, hence one chunk with tokens, or the last chunk
  when it has none (the target's own token was the end of the sequence, which is not output). Mode LLMAPI: an
  iteration of the engine, as it counts them itself; a chunk may hold several.
- mean accepted length: accepted draft tokens plus one (the target's own), per target pass.
- acceptance rate: accepted draft tokens over proposed ones, as the server counted them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Totals:
    """The server's own counts over a whole completion, in tokens; sent with the last chunk.

    `tokens_per_pass`: mode LLMAPI, 0 where the engine does not report them. TensorRT-LLM 1.2 does, but not
    its drafts.
    """

    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    input_tokens: int = 0
    tokens_per_pass: float = 0.0


@dataclass(frozen=True)
class Chunk:
    """One response of a stream: `text` and token ids since the one before.

    The first `accepted` of `ids` were accepted from the draft and make the first `draft_text_length`
    characters of `text`; `refused_text` is what the draft proposed behind those and the target refused, where it was
    asked for. Mode LLMAPI reports none of them, only totals. `finish_reason` is empty, and `totals` None, until the
    last chunk.
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    accepted: int = 0
    draft_text_length: int = 0
    finish_reason: str = ""
    totals: Totals | None = None
    refused_text: str = ""

    @property
    def is_pass(self) -> bool:
        """Whether the chunk closes a target pass; text alone may be split off before it."""
        return bool(self.ids or self.finish_reason)


@dataclass(frozen=True)
class Arrival:
    """A chunk, and when it came: seconds since its request was sent."""

    seconds: float
    chunk: Chunk


@dataclass(frozen=True)
class Completion:
    """A finished stream and its figures."""

    text: str
    ids: tuple[int, ...]
    seconds: float
    first_token_seconds: float
    passes: int
    accepted: int
    finish_reason: str
    totals: Totals

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens a second, over the whole request."""
        return len(self.ids) / self.seconds if self.seconds > 0 else 0.0

    @property
    def speculated(self) -> bool:
        """Whether any draft tokens were proposed."""
        return self.totals.draft_tokens > 0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over proposed draft tokens, 0..1; None when none were proposed."""
        return self.totals.accepted_draft_tokens / self.totals.draft_tokens if self.speculated else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens a target pass yields; None when no draft tokens were proposed (it would be 1)."""
        return 1 + self.accepted / self.passes if (self.speculated or self.accepted) and self.passes else None


class Recorder:
    """Takes a stream's arrivals in order, gives its completion."""

    def __init__(self) -> None:
        self._arrivals: list[Arrival] = []

    def add(self, arrival: Arrival) -> None:
        """Take the next arrival."""
        self._arrivals.append(arrival)

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return sum(len(arrival.chunk.ids) for arrival in self._arrivals)

    def completion(self) -> Completion | None:
        """The completion; None when its last chunk never came."""
        if not self._arrivals or not self._arrivals[-1].chunk.finish_reason:
            return None
        chunks = [arrival.chunk for arrival in self._arrivals]
        totals = chunks[-1].totals or Totals()
        with_tokens = [arrival.seconds for arrival in self._arrivals if arrival.chunk.is_pass]
        passes = round(self.tokens / totals.tokens_per_pass) if totals.tokens_per_pass else 0
        beyond = max(0, self.tokens - passes) if passes and not totals.draft_tokens else 0
        return Completion(
            text="".join(chunk.text for chunk in chunks),
            ids=tuple(token for chunk in chunks for token in chunk.ids),
            seconds=self._arrivals[-1].seconds,
            first_token_seconds=with_tokens[0],
            passes=passes or sum(chunk.is_pass for chunk in chunks),
            accepted=sum(chunk.accepted for chunk in chunks) or totals.accepted_draft_tokens or beyond,
            finish_reason=chunks[-1].finish_reason,
            totals=totals,
        )


@dataclass(frozen=True)
class ComparedCompletion:
    """A completion with speculation, and the same prompt by the target alone."""

    speculative: Completion
    alone: Completion

    @property
    def speedup(self) -> float | None:
        """Tokens/s with speculation over tokens/s without; None when the target alone made no tokens."""
        base = self.alone.tokens_per_second
        return self.speculative.tokens_per_second / base if base else None

    @property
    def first_difference(self) -> int | None:
        """Position of the first generated token that differs (0-based); None: the same, token for token."""
        return first_difference(self.speculative.ids, self.alone.ids)


def first_difference(a: Sequence[object], b: Sequence[object]) -> int | None:
    """The first position at which two sequences differ (0-based), where one ends too; None: they are the same."""
    if a == b:
        return None
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


@dataclass(frozen=True)
class PromptResult:
    """What became of a prompt: a completion, compared with the target alone if asked for, or an error."""

    index: int
    prompt: str
    completion: Completion | None = None
    alone: Completion | None = None
    error: str = ""

    @property
    def comparison(self) -> ComparedCompletion | None:
        """Both completions, when there are two."""
        if self.completion is None or self.alone is None:
            return None
        return ComparedCompletion(self.completion, self.alone)


def median_of(values: Iterable[float | None]) -> float | None:
    """Median of the values that are there; None when there are none."""
    present = [value for value in values if value is not None]
    return median(present) if present else None
