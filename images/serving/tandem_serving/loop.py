"""The draft-and-verify loop of one sequence. Pure: knows engines only by a protocol, nothing of Triton.

A round asks the draft engine for k tokens, then the target for one verification pass over them. The
target keeps the longest prefix that equals what it would have chosen itself and adds one token of its
own, so every round yields 1..k+1 tokens and the result is the target's alone, token for token. Both
engines get the whole sequence at each call: they keep its prefix in their KV caches.

End of sequence, as TensorRT-LLM reports it: end_id is not part of the output, so a verification that
returns accepted draft tokens only, without one of the target's own, has reached it. Engines that do
return end_id are understood too.

Without a draft the target runs in calls of 1, 2, 4, 8, 8, ... tokens: long enough to cost little, short
enough to stream and to be cancelled; the lengths are fixed so that results do not depend on time. (One
streaming call would be fewer, but with more than one response to a call Triton's Python backend can
deadlock its whole process up to 26.06: its iterator waits for the interpreter's lock while it holds its own.)

Penalties and bad words: TensorRT-LLM counts the whole sequence, prompt included, and a later round's
prompt is exactly the earlier sequence, so they mean the same on each round as in one long call.
`min_tokens` counts from the client's prompt: each call gets what is still missing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tandem_serving.errors import EngineError
from tandem_serving.policy import DraftLength

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]

FINISH_LENGTH = "length"
FINISH_END_ID = "end_id"
FINISH_STOP = "stop"

# Tokens of the target's calls when it runs alone, at most.
LONGEST_SPAN = 8

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class Call:
    """One engine call.

    `ids` int32[n] is the sequence so far, `draft_ids` int32[k] what to verify (then `output_len` is
    k + 1 and the engine returns 1..k+1 tokens in one pass). The engine answers with one response.
    """

    ids: IntArray
    output_len: int
    draft_ids: IntArray | None = None
    min_tokens: int = 0
    seed: int | None = None


@dataclass(frozen=True)
class Output:
    """New tokens of one engine response; `log_probs` float32[len(ids)], `logits` float32[len(ids), V]."""

    ids: list[int]
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None


class Engine(Protocol):
    """A target or draft engine, bound to one sequence (sampling parameters are its own business)."""

    def run(self, call: Call) -> Generator[Output, None, None]:
        """Yield the call's responses; raises EngineError. Closing the generator cancels the call."""
        ...


@dataclass(frozen=True)
class Sequence:
    """What to generate: `prompt` int32[n], at most `max_tokens` tokens, ended by any of `end_ids`.

    `draft_limit` is the longest sequence (tokens) that the draft engine takes. `mix_seed`: give each call
    its own seed, made of the client's and the position, for engines that start a request's random numbers
    at its seed (TensorRT-LLM); engines that key them by absolute position get the client's seed as it is.
    """

    prompt: IntArray
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    seed: int | None = None
    mix_seed: bool = False
    draft_limit: int = 1 << 30


@dataclass(frozen=True)
class Step:
    """What one engine response added. The first `accepted` of `ids` came from the draft.

    `drafted` counts the proposed tokens, `finish` is "" until the last step, `draft_error` says why the
    draft engine was given up at this step (else "").
    """

    ids: list[int]
    accepted: int = 0
    drafted: int = 0
    finish: str = ""
    draft_error: str = ""
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None


def mix(seed: int, position: int) -> int:
    """A 64-bit seed for `position`, by the SplitMix64 finaliser (Steele et al., 2014)."""
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


def common_prefix(a: list[int], b: list[int]) -> int:
    """Length of the longest common prefix of two token lists."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


class Loop:
    """Generates one sequence; `steps()` may be read once and closed at any time."""

    def __init__(self, sequence: Sequence, target: Engine, draft: Engine | None, length: DraftLength) -> None:
        self._sequence = sequence
        self._target = target
        self._draft = draft
        self._length = length
        self._start = len(sequence.prompt)
        self._ids = np.empty(self._start + sequence.max_tokens, np.int32)
        self._ids[: self._start] = sequence.prompt
        self._end = self._start
        self._finish = ""
        self._draft_error = ""

    def steps(self) -> Generator[Step, None, None]:
        """Yield steps until one has `finish`. Raises EngineError when the target fails."""
        while not self._finish:
            proposal = self._propose()
            if proposal is None:
                yield from self._target_alone()
            else:
                yield self._verify(proposal)

    @property
    def _remaining(self) -> int:
        return len(self._ids) - self._end

    def _call(self, output_len: int, draft_ids: list[int] | None = None) -> Call:
        sequence = self._sequence
        seed = sequence.seed
        if seed is not None and sequence.mix_seed:
            seed = mix(seed, self._end)
        return Call(
            ids=self._ids[: self._end],
            output_len=output_len,
            draft_ids=np.array(draft_ids, np.int32) if draft_ids else None,
            min_tokens=max(0, sequence.min_tokens - (self._end - self._start)),
            seed=seed,
        )

    def _propose(self) -> list[int] | None:
        """Draft tokens of the next round (may be none: the draft expects the end), or None: no draft."""
        if self._draft is None:
            return None
        room = min(self._remaining - 1, self._sequence.draft_limit - self._end)
        k = min(self._length.next(), room)
        if k <= 0:
            return None
        try:
            ids = [token for output in self._draft.run(self._call(k)) for token in output.ids]
        except EngineError as error:
            self._draft, self._draft_error = None, str(error)
            return None
        return ids[:k]

    def _verify(self, proposal: list[int]) -> Step:
        call = self._call(len(proposal) + 1, draft_ids=proposal)
        ids, log_probs, logits = self._read(call)
        cut = self._end_at(ids)
        accepted = common_prefix(ids[:cut], proposal)
        self._length.observe(len(proposal), accepted)
        self._append(ids[:cut])
        if cut < len(ids) or (accepted == cut and cut <= len(proposal)):
            self._finish = FINISH_END_ID
        return Step(
            ids[:cut],
            accepted=accepted,
            drafted=len(proposal),
            finish=self._finish,
            log_probs=_cut(log_probs, cut),
            logits=_cut(logits, cut),
        )

    def _target_alone(self) -> Generator[Step, None, None]:
        span = 1
        while not self._finish:
            wanted = min(span, self._remaining)
            ids, log_probs, logits = self._read(self._call(wanted))
            cut = self._end_at(ids)
            self._append(ids[:cut])
            if cut < wanted:
                self._finish = FINISH_END_ID
            error, self._draft_error = self._draft_error, ""
            yield Step(
                ids[:cut],
                finish=self._finish,
                draft_error=error,
                log_probs=_cut(log_probs, cut),
                logits=_cut(logits, cut),
            )
            span = min(2 * span, LONGEST_SPAN)

    def _read(self, call: Call) -> tuple[list[int], FloatArray | None, FloatArray | None]:
        """Run a call of the target: tokens, log probs, logits of all its responses."""
        outputs = list(self._target.run(call))
        ids = [token for output in outputs for token in output.ids][: self._remaining]
        return (
            ids,
            _join([output.log_probs for output in outputs]),
            _join([output.logits for output in outputs]),
        )

    def _append(self, ids: list[int]) -> None:
        self._ids[self._end : self._end + len(ids)] = ids
        self._end += len(ids)
        if self._remaining == 0:
            self._finish = FINISH_LENGTH

    def _end_at(self, ids: list[int]) -> int:
        """Number of tokens before the first end id."""
        for i, token in enumerate(ids):
            if token in self._sequence.end_ids:
                return i
        return len(ids)


def _join(parts: list[FloatArray | None]) -> FloatArray | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None


def _cut(values: FloatArray | None, length: int) -> FloatArray | None:
    return None if values is None else values[:length]
