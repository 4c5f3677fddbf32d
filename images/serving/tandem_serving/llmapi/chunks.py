"""From what the engine has of a sequence to chunks for its client. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tandem_serving.errors import CancelledError, EngineError
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest
from tandem_serving.requests.text import Detokenizer, StopText, StopTokens, TextStream

STOP, CANCELLED = "stop", "cancelled"


@dataclass(frozen=True)
class RequestMetrics:
    """What the engine reports of a sequence so far; None, or absent from `perf`: not reported.

    `tokens_per_iteration`: generated tokens over decoding iterations, the accepted length of speculation plus one.
    `perf`: performance figures by the names of upstream's outputs.
    `rounds`: rounds that drafted, by the number of draft tokens that they accepted, from 0 up; empty: not reported.
    """

    tokens_per_iteration: float | None = None
    draft_tokens: int | None = None
    accepted_draft_tokens: int | None = None
    perf: Mapping[str, float] = field(default_factory=dict)
    rounds: Sequence[int] = ()

    def iterations(self, tokens: int) -> int | None:
        """The decoding iterations that `tokens` tokens took."""
        return round(tokens / self.tokens_per_iteration) if self.tokens_per_iteration else None

    def accepted(self, tokens: int) -> int | None:
        """Accepted draft tokens among `tokens`: as reported, or those that are more than one an iteration."""
        iterations = self.iterations(tokens)
        if self.accepted_draft_tokens is not None or iterations is None:
            return self.accepted_draft_tokens
        return tokens - iterations


@dataclass(frozen=True)
class SequenceOutput:
    """A sequence as the engine has it: all its tokens so far; a finish reason once it is over. `log_probs`, one for
    each of them, and `prompt_log_probs`, for each of the prompt's but the first: where they are asked for."""

    ids: list[int]
    finish_reason: str = ""
    stop_reason: str = ""
    cumulative_logprob: float | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    log_probs: Sequence[float] = ()
    prompt_log_probs: Sequence[float] = ()


@dataclass(frozen=True)
class LlmApiSummary:
    """Of a whole sequence: tokens in, tokens out, and what the engine reports."""

    input_tokens: int
    output_tokens: int
    metrics: RequestMetrics


@dataclass(frozen=True)
class LlmApiChunk:
    """One response about prompt `batch_index`; its last has a `finish_reason` and a `summary`, its first the
    `prompt_ids` and `prompt_log_probs`, of all tokens but the first.

    What the request did not ask for is None, or absent from the figures.
    """

    batch_index: int
    text: str
    ids: list[int]
    finish_reason: str = ""
    stop_reason: str | None = None
    cumulative_logprob: float | None = None
    summary: LlmApiSummary | None = None
    log_probs: Sequence[float] | None = None
    prompt_ids: Sequence[int] | None = None
    prompt_log_probs: Sequence[float] | None = None

    def then(self, later: LlmApiChunk) -> LlmApiChunk:
        """Both as one. This one is not the last of its sequence."""
        return LlmApiChunk(*(_joined(getattr(self, each.name), getattr(later, each.name)) for each in fields(self)))


def _joined(one: Any, later: Any) -> Any:
    """A field of two chunks in a row: text and lists go on; a number is the same, or the later one holds."""
    if one is None or later is None:
        return later if one is None else one
    return later if isinstance(one, (int, float)) else one + later


class LlmApiWriter:
    """Turns a sequence's progress into chunks: deltas as they come, or without `stream` one at the end."""

    def __init__(self, prompt: LlmApiPrompt, request: LlmApiRequest, decode: Callable[[list[int]], str]) -> None:
        self.over = False
        self._prompt = prompt
        self._request = request
        self._stop = StopText(prompt.stop_words)
        special = StopTokens({(token,): word for token, word in prompt.stop_ids.items()})
        self._text = TextStream(Detokenizer(decode, prompt.ids, prompt.text), self._stop, special)
        self._seen = 0
        self._tells_prompt = request.prompt_log_probs
        self._all = LlmApiChunk(prompt.index, "", [])

    def write(self, progress: SequenceOutput) -> LlmApiChunk | None:
        """The chunk to send now, if any; sets `over`. Raises CancelledError when the engine gave the sequence up."""
        if progress.finish_reason == CANCELLED:
            raise CancelledError("the engine cancelled the request: send it again")
        progress = self._ended(progress)
        seen, self._seen = self._seen, len(progress.ids)
        new = progress.ids[seen:]
        step = self._text.push(new, 0, last=bool(progress.finish_reason))
        self.over = step.stopped or bool(progress.finish_reason)
        chunk = LlmApiChunk(self._prompt.index, step.text, new[: step.used])
        self._all = LlmApiChunk(self._prompt.index, self._all.text + chunk.text, self._all.ids + chunk.ids)
        if not self._request.stream:
            if not self.over:
                return None
            chunk, seen = self._echoed(), 0
        if self._request.log_probs or self._tells_prompt:
            chunk = self._with_log_probs(chunk, progress, seen)
        return self._last(chunk, progress, step.stopped) if self.over else chunk

    def _with_log_probs(self, chunk: LlmApiChunk, progress: SequenceOutput, begin: int) -> LlmApiChunk:
        """Those of its new tokens, which are the sequence's from `begin` on."""
        if self._request.log_probs:
            found, end = progress.log_probs, len(self._all.ids)
            if len(found) < end:
                raise EngineError("the engine gave no log probabilities: leave return_log_probs out")
            chunk = replace(chunk, log_probs=found[begin:end])
        if self._tells_prompt:
            self._tells_prompt = False
            chunk = replace(chunk, prompt_ids=self._prompt.ids, prompt_log_probs=progress.prompt_log_probs or None)
        return chunk

    def _ended(self, progress: SequenceOutput) -> SequenceOutput:
        """It ends before an end token that the engine does not know: some go by the tokenizer's own."""
        ends, ids = self._prompt.end_ids, progress.ids
        known = len(ids) - bool(progress.finish_reason)  # the last one may have ended it
        start = max(self._seen, int(self._prompt.sampling.get("min_tokens", 0)))
        end = next((i for i in range(start, known) if ids[i] in ends), None) if ends else None
        return progress if end is None else replace(progress, ids=ids[:end], finish_reason=STOP, stop_reason="")

    def _last(self, chunk: LlmApiChunk, progress: SequenceOutput, stopped: bool) -> LlmApiChunk:
        asked, metrics = self._request, progress.metrics
        return replace(
            chunk,
            finish_reason=STOP if stopped else progress.finish_reason,
            stop_reason=(self._stop.found or progress.stop_reason) if asked.stop_reason else None,
            cumulative_logprob=progress.cumulative_logprob if asked.cumulative_logprob else None,
            summary=LlmApiSummary(
                len(self._prompt.ids),
                len(self._all.ids),
                metrics if asked.perf_metrics else replace(metrics, perf={}),
            ),
        )

    def _echoed(self) -> LlmApiChunk:
        if not self._prompt.echo:
            return self._all
        return replace(self._all, text=self._prompt.text + self._all.text, ids=self._prompt.ids + self._all.ids)
