"""From Triton's chunks to OpenAI's responses: whole ones, and the events of a stream. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tandem_serving.openai.api import ChatRequest, CompletionRequest, NamedTool
from tandem_serving.openai.thinking import ThoughtReader
from tandem_serving.openai.tool_calls import CallPart, CallReader, merged
from tandem_serving.openai.triton import Chunk
from tandem_serving.requests.text import StopText

FINISH = {"stop": "stop", "end_id": "stop", "length": "length", "timeout": "length"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A token. `text` is what it stands for alone: U+FFFD for bytes that are no whole character. `log_prob`: None
    of a prompt's first."""

    text: str
    log_prob: float | None


@dataclass(frozen=True)
class Delta:
    """What is new of a choice; `finish_reason` with its last. `offset`: characters of the tokens before."""

    index: int
    text: str
    tokens: Sequence[Token]
    finish_reason: str | None
    first: bool
    calls: Sequence[CallPart] = ()
    offset: int = 0


@dataclass(frozen=True)
class Reading:
    """How choices' texts are read: each function makes a reader for one. `calls`: of calls of tools; `thoughts`: of
    thoughts, in which no call and no stop word counts. Then the engine does not get to know the stop words, and the
    tokens of choices that they end are counted here: `prompt_tokens` are the prompt's."""

    calls: Callable[[], CallReader] | None = None
    thoughts: Callable[[], ThoughtReader] | None = None
    prompt_tokens: int = 0


@dataclass
class _Choice:
    """`reason`: why it ended; `over`: whether the engine's last chunk of it came."""

    stop: StopText
    calls: CallReader | None
    thoughts: ThoughtReader | None
    begun: bool = False
    called: bool = False
    reason: str | None = None
    over: bool = False
    tokens: int = 0
    offset: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)
    rounds: Sequence[int] = ()

    def finish_reason(self, forced: bool) -> str | None:
        """As OpenAI has it. `forced`: its call had to be made, which is no reason to end."""
        return "tool_calls" if self.reason == "stop" and self.called and not forced else self.reason


class Completion:
    """One request's answer as it comes. `identity`: its id, and when it was created. `echo`: texts that the choices
    begin with."""

    def __init__(
        self,
        request: ChatRequest | CompletionRequest,
        identity: tuple[str, int],
        echo: Sequence[str] = (),
        reading: Reading = Reading(),
    ) -> None:
        self._request = request
        self._chat = isinstance(request, ChatRequest)
        self._id, self._created = identity
        self._echo = echo
        self._reading = reading
        self._forced = isinstance(request, ChatRequest) and isinstance(request.tool_choice, NamedTool)
        self._choices: dict[int, _Choice] = {}

    @property
    def stops_here(self) -> bool:
        """Whether stop words are looked for here, not by the engine, whose tokens must come as it makes them."""
        return bool(self._reading.thoughts and self._request.stops)

    def delta(self, index: int, chunk: Chunk, piece: Callable[[int], str]) -> Delta | None:
        """What a chunk brings to a choice; None: the choice has ended. `piece`: a token's text."""
        if not (choice := self._choices.get(index)):
            choice = self._choices[index] = self._new_choice()
        choice.over = bool(chunk.finish_reason)
        if choice.reason:
            return None
        text, calls = self._read(choice, chunk)
        first, choice.begun = not choice.begun, True
        if first and self._echo:
            text = self._echo[index] + text
        choice.called = choice.called or bool(calls)
        tokens = []
        if self._request.with_log_probs:
            known = [*zip(chunk.prompt_ids, (None, *chunk.prompt_log_probs), strict=False)]
            known += zip(chunk.ids, chunk.log_probs, strict=True)
            tokens = [Token(piece(token), value) for token, value in known]
        offset, choice.offset = choice.offset, choice.offset + sum(len(token.text) for token in tokens)
        return Delta(index, text, tokens, choice.finish_reason(self._forced), first, calls, offset)

    def left_behind(self, choices: int) -> bool:
        """Whether all of so many choices have ended, some of them not in the engine: it can stop."""
        known = self._choices.values()
        return len(known) == choices and all(each.reason for each in known) and not all(each.over for each in known)

    def _new_choice(self) -> _Choice:
        calls, thoughts = self._reading.calls, self._reading.thoughts
        return _Choice(StopText(self._request.stops), calls and calls(), thoughts and thoughts())

    def _read(self, choice: _Choice, chunk: Chunk) -> tuple[str, Sequence[CallPart]]:
        """A chunk's text, and its calls; sets `reason` at the choice's end. Mode BLS keeps a stop word, which is no
        text here."""
        thought, text = choice.thoughts.push(chunk.text, choice.over) if choice.thoughts else ("", chunk.text)
        text, stopped = choice.stop.push(text)
        if choice.over and not stopped:
            text += choice.stop.flush()
        if choice.over or stopped:
            choice.reason = "stop" if stopped else FINISH.get(chunk.finish_reason, "stop")
        choice.tokens += len(chunk.ids)
        if choice.over:
            choice.figures, choice.rounds = chunk.figures, chunk.rounds
        elif stopped:
            choice.figures = {"input_tokens": self._reading.prompt_tokens, "output_tokens": choice.tokens}
        text, calls = choice.calls.push(text, over=bool(choice.reason)) if choice.calls else (text, [])
        return thought + text, calls

    def event(self, delta: Delta) -> Json:
        """A delta as an event of a stream."""
        if self._chat:
            role = {"role": "assistant"} if delta.first else {}
            text = {"content": delta.text} if delta.text or delta.first else {}
            content: Json = {"delta": {**role, **text, **_call_deltas(delta.calls)}}
        else:
            content = {"text": delta.text}
        usage = {"usage": None} if self._request.include_usage else {}
        return {**self._head(streamed=True), "choices": [self._choice(delta, content)], **usage}

    def last_event(self) -> Json:
        """With `include_usage`: that of the whole request."""
        return {**self._head(streamed=True), "choices": [], "usage": self.usage(), **self._metrics()}

    def whole(self, deltas: Sequence[Delta]) -> Json:
        """The response of all deltas."""
        choices, of_choice = [], {index: list[Delta]() for index in sorted(self._choices)}
        for delta in deltas:
            of_choice[delta.index].append(delta)
        for index, own in of_choice.items():
            text, tokens = "".join(delta.text for delta in own), [token for delta in own for token in delta.tokens]
            whole = Delta(index, text, tokens, own[-1].finish_reason, first=True)
            calls = _whole_calls([part for delta in own for part in delta.calls])
            content = None if calls and not text.strip() else text
            message = {"message": {"role": "assistant", "content": content, "refusal": None, **calls}}
            choices.append(self._choice(whole, message if self._chat else {"text": text}))
        return {**self._head(streamed=False), "choices": choices, "usage": self.usage(), **self._metrics()}

    def usage(self) -> Json:
        """Tokens of the request; of drafts where the engine reports them."""
        figures = {index: choice.figures for index, choice in self._choices.items()}
        prompt = sum(each.get("input_tokens", 0) for index, each in figures.items() if index % self._request.n == 0)
        completion = sum(each.get("output_tokens", 0) for each in figures.values())
        usage: Json = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        if any("draft_tokens" in each for each in figures.values()):
            drafted = sum(each.get("draft_tokens", 0) for each in figures.values())
            accepted = sum(each.get("accepted_draft_tokens", 0) for each in figures.values())
            details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted}
            usage["completion_tokens_details"] = details
        return usage

    def _metrics(self) -> Json:
        """Acceptance of a single sequence, where the engine reports its rounds. AIPerf reads it as vLLM's own server
        writes it: https://docs.vllm.ai/en/v0.32.0/features/speculative_decoding/acceptance_metrics/"""
        choices = list(self._choices.values())
        if len(choices) != 1 or not choices[0].rounds:
            return {}
        return {"metrics": {"speculative_decoding": _acceptance(choices[0])}}

    def _head(self, *, streamed: bool) -> Json:
        kind = "text_completion"
        if self._chat:
            kind = "chat.completion.chunk" if streamed else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._request.model}

    def _choice(self, delta: Delta, content: Json) -> Json:
        log_probs = None
        if self._request.with_log_probs:
            log_probs = _chat_log_probs(delta.tokens) if self._chat else _log_probs(delta.tokens, delta.offset)
        return {"index": delta.index, **content, "logprobs": log_probs, "finish_reason": delta.finish_reason}


def _acceptance(choice: _Choice) -> Json:
    rounds = sum(choice.rounds)
    drafted, accepted = (choice.figures[name] for name in ("draft_tokens", "accepted_draft_tokens"))
    return {
        "mean_acceptance_length": 1 + accepted / rounds,
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": list(choice.rounds),
        "num_spec_steps": rounds,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": len(choice.rounds) - 1,
    }


def _call_deltas(parts: Sequence[CallPart]) -> Json:
    return {"tool_calls": [{"index": part.number, **_call(part)} for part in parts]} if parts else {}


def _whole_calls(parts: Sequence[CallPart]) -> Json:
    calls = merged(sorted(parts, key=lambda part: part.number))
    return {"tool_calls": [_call(call) for call in calls]} if calls else {}


def _call(part: CallPart) -> Json:
    if not part.name:
        return {"function": {"arguments": part.arguments}}
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}


def _chat_log_probs(tokens: Sequence[Token]) -> Json:
    content = [
        {"token": token.text, "logprob": token.log_prob, "bytes": list(token.text.encode()), "top_logprobs": []}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _log_probs(tokens: Sequence[Token], offset: int) -> Json:
    lengths = [len(token.text) for token in tokens]
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_prob for token in tokens],
        "top_logprobs": None,
        "text_offset": list(accumulate(lengths[:-1], initial=offset)) if tokens else [],
    }
