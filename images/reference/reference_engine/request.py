"""What the engine is asked for, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
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
    one verification pass, which yields the accepted ones and one more, then the request ends. `end_id` -1:
    none. `log_probs` and `logits` ask for these outputs, `streaming` for an output at each iteration.
    """

    input_ids: IntArray
    max_new_tokens: int
    draft_ids: IntArray | None = None
    end_id: int = -1
    stop_words: Words = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    streaming: bool = False
    log_probs: bool = False
    logits: bool = False


@dataclass(frozen=True)
class Stats:
    """Of one sequence: tokens of the prompt found in the KV cache, draft tokens sent and accepted."""

    reused_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0


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


Sink = Callable[[Output], None]


@dataclass(frozen=True)
class Limits:
    """What an engine takes: tokens of a sequence (prompt, draft and output), size of the vocabulary."""

    max_seq_len: int
    vocab_size: int


def check(request: Request, limits: Limits) -> None:
    """Raises RequestError for a request that the engine cannot serve."""
    prompt = len(request.input_ids)
    if prompt == 0:
        raise RequestError("input_ids is empty: send at least one token")
    if request.max_new_tokens <= 0:
        raise RequestError(f"request_output_len is {request.max_new_tokens}: send 1 or more")
    _check_ids("input_ids", request.input_ids, limits)
    if request.draft_ids is not None:
        _check_ids("draft_input_ids", request.draft_ids, limits)
    drafted = 0 if request.draft_ids is None else len(request.draft_ids)
    longest = prompt + max(request.max_new_tokens, drafted)
    if longest > limits.max_seq_len:
        what = f"{prompt} prompt tokens and {longest - prompt} to generate"
        raise RequestError(f"{what} are {longest}, more than the model's limit of {limits.max_seq_len}: shorten one")
    _check_sampling(request.sampling, limits)


def _check_ids(name: str, ids: IntArray, limits: Limits) -> None:
    if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < limits.vocab_size):
        raise RequestError(f"{name} holds ids outside 0..{limits.vocab_size - 1}: use this model's tokenizer")


def _check_sampling(params: SamplingParams, limits: Limits) -> None:
    rules = {
        f"runtime_top_k is {params.top_k}: send 0 (no limit) or more": params.top_k >= 0,
        f"runtime_top_p is {params.top_p}: send 0 to 1": 0 <= params.top_p <= 1,
        f"temperature is {params.temperature}: send 0 or more": 0 <= params.temperature < np.inf,
        f"repetition_penalty is {params.repetition_penalty}: send more than 0": (
            0 < params.repetition_penalty < np.inf
        ),
        f"presence_penalty is {params.presence_penalty}: send a finite number": np.isfinite(params.presence_penalty),
        f"frequency_penalty is {params.frequency_penalty}: send a finite number": (
            np.isfinite(params.frequency_penalty)
        ),
        f"min_tokens is {params.min_tokens}: send 0 or more": params.min_tokens >= 0,
    }
    for message, holds in rules.items():
        if not holds:
            raise RequestError(message)
    bias = params.embedding_bias
    if bias is not None and (bias.shape != (limits.vocab_size,) or np.isnan(bias).any()):
        raise RequestError(f"embedding_bias has shape {list(bias.shape)}: send {limits.vocab_size} numbers")
    if any(not 0 <= token < limits.vocab_size for word in params.bad_words for token in word):
        raise RequestError(f"bad_words_list holds ids outside 0..{limits.vocab_size - 1}")
