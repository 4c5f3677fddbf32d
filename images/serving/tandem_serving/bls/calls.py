"""What sequences ask of the engines, and what that gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
Role = Literal["draft", "target"]

# Tokens of the target's calls where it runs alone and its engine cannot stream, at most.
LONGEST_SPAN = 16


class Call(NamedTuple):
    """One engine call for one sequence; the engine answers with one Output.

    `ids` int32[n] is the sequence so far. A target's call with `draft_ids` (k of them) is a verification:
    `output_len` is k + 1 and the engine returns 1..k+1 tokens in one pass; `draft_logits` float[k, V] are
    those that the draft chose from. `first`: the engine has not seen the sequence before.
    """

    role: Role
    ids: IntArray
    output_len: int
    draft_ids: tuple[int, ...] = ()
    draft_logits: FloatArray | None = None
    min_tokens: int = 0
    seed: int | None = None
    first: bool = False


class Part(NamedTuple):
    """Tokens of a streaming call that goes on: `start` came before them. Its Output has all of them again."""

    stream: int
    start: int
    ids: list[int]


class ServerRound(NamedTuple):
    """What the server reports of a round that it made by itself, see images/serving/collector/rounds.cpp.

    Seconds of its draft (0: not known) and of its verification, of `draft_length` tokens; the calls of one `group`,
    so many `members`, were verified together.
    """

    draft_seconds: float
    target_seconds: float
    group: int
    members: int
    draft_length: int = 0


class Output(NamedTuple):
    """New tokens of an engine; `log_probs` float32[len(ids)], `logits` float[len(ids), V].

    With fast logits a draft's `logits` are a handle, float32[1, m], that means something to the engines alone.
    `figures` are the call's performance metrics by TensorRT-LLM's names. Of a whole round `ids` are the target's,
    `drafted` what was drafted.
    """

    ids: list[int]
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None
    perf_metrics: Mapping[str, int] | None = None
    drafted: list[int] | None = None
    server_round: ServerRound | None = None


class NewTokens(NamedTuple):
    """What one call of the target added. The first `accepted` of `ids` came from the draft.

    `drafted` counts the proposed tokens, `refused` are those after the accepted ones; `finish` is "" until the last
    step.
    """

    ids: list[int]
    accepted: int = 0
    drafted: int = 0
    finish: str = ""
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None
    perf_metrics: Mapping[str, int] | None = None
    refused: tuple[int, ...] = ()


def padded(call: Call, length: int) -> Call:
    """The verification with `length` draft tokens: more made-up ones, which change nothing.

    What the target would not have chosen is refused, whoever proposed it. Calls of equal length can
    share one engine call.
    """
    extra = length - len(call.draft_ids)
    filled = (*call.draft_ids, *([int(call.ids[-1])] * extra))
    return call._replace(draft_ids=filled, output_len=length + 1) if extra > 0 else call
