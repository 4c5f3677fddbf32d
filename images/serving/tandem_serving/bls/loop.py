"""The draft-and-verify loop of one sequence, as a state machine. Pure: calls go out, outputs come in.

A round asks the draft engine for k tokens, then the target for one verification pass over them. The
target keeps the longest prefix that equals what it would have chosen itself and adds one token of its
own, so every round yields 1..k+1 tokens and the result is the target's alone, token for token. Both
engines get the whole sequence at each call: they keep its prefix in their KV caches.

    begin(k) ──▶ draft call ──drafted()──▶ verification ──verified()──▶ Step, and begin(k) again
        └──────▶ target call (k = 0, or the draft failed) ────┘

End of sequence, as TensorRT-LLM reports it: end_id is not part of the output, so a verification that
returns accepted draft tokens only, without one of the target's own, has reached it. Engines that do
return end_id are understood too.

Without a draft the target makes all tokens that are left in one streaming call: `part` takes what came while it goes
on, `verified` its answer, which has all of them again. Whoever wants a draft meanwhile gives the call up. Where the
engine cannot stream, calls are of 1, 2, 4, 8, 16, 16, ... tokens, so that text flows.

Penalties and bad words: TensorRT-LLM counts the whole sequence, prompt included, and a later round's
prompt is exactly the earlier sequence, so they mean the same on each round as in one long call.
`min_tokens` counts from the client's prompt: each call gets what is still missing. An end id of which the engine
knows nothing is text until then. By logits the draft gets no `min_tokens`: banning its end would change the
distribution that it is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem_serving.bls.calls import (
    LONGEST_SPAN,
    Call,
    FloatArray,
    IntArray,
    NewTokens,
    Output,
    Role,
    padded,
)

FINISH_LENGTH = "length"
FINISH_END_ID = "end_id"
FINISH_STOP = "stop"

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class LoopParams:
    """What to generate: `prompt` int32[n], at most `max_tokens` tokens, ended by any of `end_ids`.

    `target_limit` and `draft_limit` are the longest sequences (tokens) that the engines take; 0: there is
    no draft engine. `mix_seed`: give each call its own seed, made of the client's and the position, for
    engines that start a request's random numbers at its seed (TensorRT-LLM); engines that key them by
    absolute position get the client's seed as it is. `use_draft_logits`: verify by logits. `one_call`: the
    target alone in a single call, for what an engine keeps track of from a request's first token (a guide).
    `vocabulary`: ids below it both engines have; a draft stops before another, and a text with one is not drafted on.
    `streams`: tokens of the target's calls can be read while they run. `redrawn`: where the engine refuses a draft
    token it draws once more, the refused token among the others (TensorRT-LLM, where it samples by match), so that
    made-up tokens would come out more often than the target has them.
    """

    prompt: IntArray
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    seed: int | None = None
    mix_seed: bool = False
    target_limit: int = 1 << 30
    draft_limit: int = 1 << 30
    vocabulary: int = 1 << 31
    use_draft_logits: bool = False
    one_call: bool = False
    streams: bool = False
    redrawn: bool = False


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


class SequenceLoop:
    """Generates one sequence. Alternate `begin` (and `drafted`) with `verified` until `finish` is set."""

    def __init__(self, sequence: LoopParams) -> None:
        self.finish = ""
        self.streamed = 0  # tokens of the target's call that were taken while it goes on
        self._sequence = sequence
        self._start = len(sequence.prompt)
        self._ids = np.empty(self._start + sequence.max_tokens, np.int32)
        self._ids[: self._start] = sequence.prompt
        self._end = self._start
        self._proposal: list[int] = []
        self._span = 1
        self._wanted = 0
        self._seen: set[Role] = set()
        self._drafts = not any(token >= sequence.vocabulary for token in sequence.prompt.tolist())

    def begin(self, draft_length: int) -> Call:
        """The first call of the next round: to the draft, or to the target alone where k comes to 0."""
        k = self._length(draft_length)
        if k <= 0:
            return self._alone()
        # One round without a draft among others must not be a long one, nor all calls short after one with.
        self._span = max(1, self._span // 4)
        return self._call("draft", k)

    def next_token(self) -> Call:
        """The next token by the target alone, where drafts are to follow: after a prompt, or a draft that failed."""
        return self._alone() if self._sequence.one_call else self._call("target", 1)

    def drafted(self, output: Output) -> Call:
        """Take the draft's answer: the verification (by the target alone if the draft expects the end)."""
        room = min(self._remaining - 1, self._room())
        self._proposal = self._shared(output.ids[:room])
        if not self._proposal:
            return self._call("target", 1)
        # Logits are passed on as they came: fast ones are a handle that only the engines understand.
        return self._call("target", len(self._proposal) + 1, tuple(self._proposal), output.logits)

    def again(self, call: Call) -> Call | None:
        """What to ask for where a call of the target was lost: all of it, or what is left of a stream. None: it
        cannot go on from there."""
        if not self.streamed:
            return call
        return None if self._sequence.one_call else self._alone()

    def reads(self, call: Call) -> bool:
        """Whether the tokens of `call` are to be read while it runs."""
        return self._sequence.streams and call.role == "target" and not call.draft_ids and call.output_len > 1

    def part(self, start: int, ids: list[int]) -> NewTokens | None:
        """Take tokens of a streaming call that goes on, after `start` of it: what the sequence has gained.

        None where some before them are not known: the call's answer has all.
        """
        if start != self.streamed:
            return None
        self.streamed += len(ids)
        ids = ids[: self._remaining]
        cut = self._end_at(ids)
        self._append(ids[:cut])
        if cut < len(ids):
            self.finish = FINISH_END_ID
        return NewTokens(ids[:cut], finish=self.finish)

    def verified(self, output: Output) -> NewTokens:
        """Take the target's answer: what the sequence has gained."""
        proposal, self._proposal = self._proposal, []
        ids = output.ids[self.streamed :][: self._remaining]
        cut = self._end_at(ids)
        accepted = common_prefix(ids[:cut], proposal)
        self._append(ids[:cut])
        if cut < len(ids) or (not self.finish and self._is_short(cut, accepted, len(proposal))):
            self.finish = FINISH_END_ID
        return NewTokens(
            ids[:cut],
            accepted=accepted,
            drafted=len(proposal),
            finish=self.finish,
            log_probs=None if output.log_probs is None else output.log_probs[:cut],
            logits=None if output.logits is None else output.logits[:cut],
            perf_metrics=output.perf_metrics,
            refused=tuple(proposal[accepted:]),
        )

    @property
    def pads(self) -> bool:
        """Whether made-up tokens may fill up its drafts: they have no logits, and must not come out."""
        return not (self._sequence.use_draft_logits or self._sequence.redrawn)

    def takes(self, call: Call, length: int) -> bool:
        """Whether `call` can become a verification of `length` draft tokens, made-up ones among them."""
        return self.pads and len(call.ids) + length + 1 <= self._sequence.target_limit

    def pad_to(self, call: Call, length: int) -> Call | None:
        """`call` with `length` draft tokens, None where it must stay as it is."""
        return padded(call, length) if self.takes(call, length) else None

    @property
    def longest_draft(self) -> int:
        """Tokens that its next draft could have at most."""
        return max(0, self._length(self._remaining))

    @property
    def _remaining(self) -> int:
        return len(self._ids) - self._end

    def _length(self, draft_length: int) -> int:
        if self._sequence.one_call or not self._drafts:
            return 0
        return min(draft_length, self._remaining - 1, self._room())

    def _room(self) -> int:
        return self._sequence.draft_limit - self._end

    def _alone(self) -> Call:
        if self._sequence.one_call or self._sequence.streams:
            return self._call("target", self._remaining)
        span, self._span = self._span, min(2 * self._span, LONGEST_SPAN)
        return self._call("target", min(span, self._remaining))

    def _call(
        self, role: Role, output_len: int, draft_ids: tuple[int, ...] = (), draft_logits: FloatArray | None = None
    ) -> Call:
        sequence = self._sequence
        seed = sequence.seed
        independent = role == "draft" and sequence.use_draft_logits
        if seed is not None and sequence.mix_seed:
            # By logits, the draft's choice and the target's test must be independent; by match, they
            # should be as alike as can be.
            seed = mix(mix(seed, -1) if independent else seed, self._end)
        if role == "target":
            self._wanted, self.streamed = output_len, 0
        first = role not in self._seen
        self._seen.add(role)
        return Call(
            role=role,
            ids=self._ids[: self._end],
            output_len=output_len,
            draft_ids=draft_ids,
            draft_logits=draft_logits,
            min_tokens=0 if independent else max(0, sequence.min_tokens - (self._end - self._start)),
            seed=seed,
            first=first,
        )

    def _is_short(self, length: int, accepted: int, drafted: int) -> bool:
        """Whether the target stopped before it had to: at the end of the text."""
        if drafted:
            return accepted == length and length <= drafted
        return self.streamed + length < self._wanted

    def _shared(self, ids: list[int]) -> list[int]:
        """Tokens before the first that one of the engines does not have."""
        return ids[: next((i for i, token in enumerate(ids) if token >= self._sequence.vocabulary), None)]

    def _append(self, ids: list[int]) -> None:
        self._drafts = self._drafts and len(self._shared(ids)) == len(ids)
        self._ids[self._end : self._end + len(ids)] = ids
        self._end += len(ids)
        if self._remaining == 0:
            self.finish = FINISH_LENGTH

    def _end_at(self, ids: list[int]) -> int:
        """Number of tokens before the first end id that counts: engines ban only one until `min_tokens`."""
        ends = self._sequence.end_ids
        if not ends.isdisjoint(ids):
            due = self._start + self._sequence.min_tokens - self._end
            for i, token in enumerate(ids):
                if i >= due and token in ends:
                    return i
        return len(ids)
