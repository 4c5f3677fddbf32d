"""What the engine is asked for, and what it answers."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from reference_engine.sampling import SamplingParams, Words

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


class RequestError(ValueError):
    """A request that cannot be served; the message is for the client."""


class Finish(StrEnum):
    """Why a sequence ended."""

    NONE = ""
    LENGTH = "length"
    END_ID = "end_id"
    STOP = "stop"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True)
class Request:
    """One sequence to generate.

    `input_ids` int32[n]. Without `draft_ids`: at most `max_new_tokens` tokens. With int32[k] draft tokens:
    one verification pass, which yields the accepted ones and one more, then the request ends. They are
    accepted where they equal the target's choice; with `draft_logits` float32[k, V], the raw logits that
    the draft chose them from, as `acceptance` says. `end_id` -1: none; `more_ends` end the text likewise.
    `log_probs` and `logits` ask for these outputs, `streaming` for an output at each iteration. `arrival_ns`
    is of the monotonic clock.
    """

    input_ids: IntArray
    max_new_tokens: int
    draft_ids: IntArray | None = None
    draft_logits: FloatArray | None = None
    end_id: int = -1
    more_ends: tuple[int, ...] = ()
    stop_words: Words = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    streaming: bool = False
    log_probs: bool = False
    logits: bool = False
    arrival_ns: int = field(default_factory=time.monotonic_ns, compare=False)


@dataclass(frozen=True)
class Stats:
    """Of one sequence: tokens of the prompt found in the KV cache, draft tokens sent and accepted, tokens that
    the KV cache holds; when it got its slot, its first and its last token.

    Times are nanoseconds of the monotonic clock, 0: not yet.
    """

    reused_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    cached_tokens: int = 0
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0


@dataclass(frozen=True)
class Output:
    """New tokens of a sequence: with streaming those of one iteration, else all of them.

    `log_probs` has one number a token, `logits` is float32[tokens, V] (raw, before any processing). The last
    output has a `finish`; with Finish.ERROR `error` says what went wrong.
    """

    tokens: list[int]
    log_probs: list[float]
    logits: list[FloatArray]
    finish: Finish
    stats: Stats
    error: str = ""

    def then(self, later: "Output") -> "Output":
        """Both as one output."""
        return replace(
            later,
            tokens=self.tokens + later.tokens,
            log_probs=self.log_probs + later.log_probs,
            logits=self.logits + later.logits,
        )


Sink = Callable[[Output], None]


@dataclass(frozen=True)
class Limits:
    """What an engine takes: tokens of a sequence (prompt, draft and output), of a draft, of the vocabulary."""

    max_seq_len: int
    max_draft_len: int
    vocab_size: int


_RULES: tuple[tuple[str, str, Callable[[float], bool], str], ...] = (
    ("runtime_top_k", "top_k", lambda value: value >= 0, "0 (no limit) or more"),
    ("runtime_top_p", "top_p", lambda value: 0 <= value <= 1, "0 to 1"),
    ("temperature", "temperature", lambda value: 0 <= value < math.inf, "0 or more"),
    ("repetition_penalty", "repetition_penalty", lambda value: 0 < value < math.inf, "more than 0"),
    ("presence_penalty", "presence_penalty", math.isfinite, "a finite number"),
    ("frequency_penalty", "frequency_penalty", math.isfinite, "a finite number"),
    ("min_tokens", "min_tokens", lambda value: value >= 0, "0 or more"),
)


def check(request: Request, limits: Limits) -> None:
    """Raises RequestError for a request that the engine cannot serve."""
    prompt = len(request.input_ids)
    if prompt == 0:
        raise RequestError("input_ids is empty: send at least one token")
    if request.max_new_tokens <= 0:
        raise RequestError(f"request_output_len is {request.max_new_tokens}: send 1 or more")
    _check_ids("input_ids", request.input_ids, limits)
    drafted = _check_draft(request, limits)
    longest = prompt + max(request.max_new_tokens, drafted)
    if longest > limits.max_seq_len:
        what = f"{prompt} prompt tokens and {longest - prompt} to generate"
        raise RequestError(f"{what} are {longest}, more than the model's limit of {limits.max_seq_len}: shorten one")
    _check_sampling(request.sampling, limits)


def _check_draft(request: Request, limits: Limits) -> int:
    """The number of draft tokens."""
    ids, logits = request.draft_ids, request.draft_logits
    drafted = 0 if ids is None else len(ids)
    if ids is not None:
        _check_ids("draft_input_ids", ids, limits)
    if drafted > limits.max_draft_len:
        raise RequestError(f"draft_input_ids has {drafted} tokens: send {limits.max_draft_len} at most")
    if logits is not None:
        if logits.shape != (drafted, limits.vocab_size):
            wanted = f"[{drafted}, {limits.vocab_size}], the draft's generation_logits of draft_input_ids"
            raise RequestError(f"draft_logits has shape {list(logits.shape)} in a row: send {wanted}")
        if not np.isfinite(logits.max(axis=1)).all():  # one token is possible at least
            raise RequestError("draft_logits holds NaN or infinity: send the draft's generation_logits as they are")
    return drafted


def _check_ids(name: str, ids: IntArray, limits: Limits) -> None:
    if len(ids) and int(ids.view(np.uint32).max()) >= limits.vocab_size:  # negative ones are large without a sign
        raise RequestError(f"{name} holds ids outside 0..{limits.vocab_size - 1}: use this model's tokenizer")


def _check_sampling(params: SamplingParams, limits: Limits) -> None:
    for name, attribute, holds, wanted in _RULES:
        value = getattr(params, attribute)
        if not holds(value):
            raise RequestError(f"{name} is {value}: send {wanted}")
    bias = params.embedding_bias
    if bias is not None and (bias.shape != (limits.vocab_size,) or np.isnan(bias).any()):
        raise RequestError(f"embedding_bias has shape {list(bias.shape)}: send {limits.vocab_size} numbers")
    if any(not 0 <= token < limits.vocab_size for word in params.bad_words for token in word):
        raise RequestError(f"bad_words_list holds ids outside 0..{limits.vocab_size - 1}")
