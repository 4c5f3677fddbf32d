"""A sequence's responses: steps and text in, chunks out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem_serving.bls.calls import FloatArray, NewTokens
from tandem_serving.bls.loop import FINISH_STOP
from tandem_serving.bls.request import BlsPrompt
from tandem_serving.requests.text import TextDelta, TextStream


@dataclass(frozen=True)
class BlsSummary:
    """Counts over all of a sequence's steps."""

    draft_tokens: int
    accepted_draft_tokens: int
    input_tokens: int
    output_tokens: int
    rounds: Sequence[int] = ()
    """By the number of draft tokens that they accepted, from 0 up to the longest draft; empty: nothing drafted."""

    @property
    def acceptance_rate(self) -> float:
        """Accepted over proposed draft tokens; 0 when none were proposed."""
        return self.accepted_draft_tokens / self.draft_tokens if self.draft_tokens else 0.0


class BlsChunk(NamedTuple):
    """One response about prompt `batch_index`.

    The first `accepted` of `ids` were accepted from the draft, the first `draft_length` characters of
    `text` come from them; `refused` is the text of the draft's tokens after those, where it was asked for.
    `log_probs` float32[m] and `logits` float32[m, V] are of the generated tokens. The prompt's last
    chunk has `finish_reason`, `summary` and, where they were asked for, the `figures` of its calls of the target, by
    TensorRT-LLM's names.
    """

    batch_index: int
    text: str
    ids: list[int]
    accepted: int = 0
    draft_length: int = 0
    finish_reason: str = ""
    cum_log_prob: float | None = None
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None
    summary: BlsSummary | None = None
    perf_metrics: Mapping[str, int] | None = None
    refused: str | None = None


# Performance metrics of a sequence's first call that are the sequence's; of the others its last call's are.
_FIRST = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns")


class BlsWriter:
    """Turns one sequence's steps into chunks: as they come (`stream`), or one at the end.

    A streamed chunk is a delta, with the text of refused draft tokens where `refused` asks for it. The one chunk of a
    sequence that is not streamed also repeats the prompt, unless the client excluded it (upstream's
    `exclude_input_in_output`).
    """

    def __init__(self, prompt: BlsPrompt, text: TextStream, stream: bool, refused: bool = False) -> None:
        self.over = False
        self.used = 0
        self.prompt_tokens = len(prompt.ids)
        self._prompt = prompt
        self._text = text
        self._stream = stream
        self._refused = refused
        self._drafted = self._accepted = 0
        self._rounds: list[int] = []
        self._output = BlsChunk(prompt.index, "", [])
        self._log_probs: list[FloatArray] = []
        self._logits: list[FloatArray] = []
        self._tokens = 0
        self._cum_log_prob: float | None = None
        self._perf_metrics: Mapping[str, int] | None = None

    def write(self, step: NewTokens) -> list[BlsChunk]:
        """Take a step: the chunks to send now.

        Sets `over` at its finish, or a stop word in the text; `used`: its tokens before that.
        """
        accepted, refused = step.ids[: step.accepted], list(step.refused)
        refused_text = self._text.detokenizer.preview(accepted, refused) if self._refused else None
        text = self._text.push(step.ids, step.accepted, last=bool(step.finish))
        finish = FINISH_STOP if text.stopped else step.finish
        self._count(step.drafted, step.accepted)
        self.used = text.used
        self._tokens += text.used
        if step.perf_metrics is not None:
            first = self._perf_metrics or {}
            self._perf_metrics = {**step.perf_metrics, **{name: first[name] for name in _FIRST if name in first}}
        self.over = bool(finish)
        chunk = self._chunk(step, text, finish)
        if self._refused:  # behind a stop word nothing is: the text ended there
            chunk = chunk._replace(refused="" if text.stopped else refused_text)
        return [chunk] if self._stream else self._collect(chunk)

    def _chunk(self, step: NewTokens, text: TextDelta, finish: str) -> BlsChunk:
        used = text.used
        log_probs = None if step.log_probs is None else step.log_probs[:used]
        if log_probs is not None:
            self._cum_log_prob = (self._cum_log_prob or 0.0) + float(log_probs.sum())
        return BlsChunk(
            self._prompt.index,
            text.text,
            step.ids[:used],
            accepted=min(step.accepted, used),
            draft_length=text.draft_length,
            finish_reason=finish,
            cum_log_prob=self._cum_log_prob,
            log_probs=log_probs,
            logits=None if step.logits is None else step.logits[:used],
            summary=self._summary() if finish else None,
            perf_metrics=self._perf_metrics if finish else None,
        )

    def _count(self, drafted: int, accepted: int) -> None:
        self._drafted += drafted
        self._accepted += accepted
        if drafted:
            self._rounds += [0] * (drafted + 1 - len(self._rounds))
            self._rounds[accepted] += 1

    def _summary(self) -> BlsSummary:
        return BlsSummary(self._drafted, self._accepted, len(self._prompt.ids), self._tokens, self._rounds)

    def _collect(self, chunk: BlsChunk) -> list[BlsChunk]:
        total = self._output
        total.ids.extend(chunk.ids)
        for parts, part in ((self._log_probs, chunk.log_probs), (self._logits, chunk.logits)):
            if part is not None:
                parts.append(part)
        self._output = chunk._replace(
            text=total.text + chunk.text,
            ids=total.ids,
            accepted=total.accepted + chunk.accepted,
            draft_length=0,  # drafted and other text alternate: there is no leading part
        )
        if not chunk.finish_reason:
            return []
        return [self._echoed(self._output)._replace(log_probs=_whole(self._log_probs), logits=_whole(self._logits))]

    def _echoed(self, chunk: BlsChunk) -> BlsChunk:
        if not self._prompt.echo:
            return chunk
        return chunk._replace(text=self._prompt.text + chunk.text, ids=self._prompt.ids.tolist() + chunk.ids)


def _whole(parts: list[FloatArray]) -> FloatArray | None:
    """Logits are up to a megabyte a token: they are copied once, at the end."""
    return np.concatenate(parts) if parts else None
