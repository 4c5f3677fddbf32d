"""From Triton's chunks to OpenAI's responses: whole ones, and the events of a stream. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem_serving.openai.api import ChatRequest, CompletionRequest, NamedTool
from tandem_serving.openai.tool_calls import CallPart, CallReader, merged
from tandem_serving.openai.triton import Chunk
from tandem_serving.requests.text import StopText

FINISH = {"stop": "stop", "end_id": "stop", "length": "length", "timeout": "length"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A generated token. `text` is what it stands for alone: U+FFFD for bytes that are no whole character."""

    text: str
    log_prob: float


@dataclass(frozen=True)
class Delta:
    """What is new of a choice; `finish_reason` with its last."""

    index: int
    text: str
    tokens: Sequence[Token]
    finish_reason: str | None
    first: bool
    calls: Sequence[CallPart] = ()


@dataclass
class _Choice:
    stop: StopText
    reader: CallReader | None
    begun: bool = False
    called: bool = False
    figures: Mapping[str, int] = field(default_factory=dict)


class Completion:
    """One request's answer as it comes. `identity`: its id, and when it was created. `echo`: texts that the choices
    begin with. `reader`: makes what finds the calls of tools in a choice's text."""

    def __init__(
        self,
        request: ChatRequest | CompletionRequest,
        identity: tuple[str, int],
        echo: Sequence[str] = (),
        reader: Callable[[], CallReader] | None = None,
    ) -> None:
        self._request = request
        self._chat = isinstance(request, ChatRequest)
        self._id, self._created = identity
        self._echo = echo
        self._reader = reader
        # As OpenAI has it: a forced call is no reason to end.
        self._forced = isinstance(request, ChatRequest) and isinstance(request.tool_choice, NamedTool)
        self._choices: dict[int, _Choice] = {}

    def delta(self, index: int, chunk: Chunk, piece: Callable[[int], str]) -> Delta:
        """What a chunk brings to a choice. `piece`: a token's text. The text ends before a stop word: mode BLS keeps
        it."""
        if not (choice := self._choices.get(index)):
            choice = self._choices[index] = _Choice(StopText(self._request.stops), self._reader and self._reader())
        text, stopped = choice.stop.push(chunk.text)
        if chunk.finish_reason and not stopped:
            text += choice.stop.flush()
        first, choice.begun = not choice.begun, True
        if first and self._echo:
            text = self._echo[index] + text
        if chunk.finish_reason:
            choice.figures = chunk.figures
        text, calls = choice.reader.push(text, over=bool(chunk.finish_reason)) if choice.reader else (text, [])
        choice.called = choice.called or bool(calls)
        tokens = [Token(piece(token), value) for token, value in zip(chunk.ids, chunk.log_probs, strict=True)]
        reason = FINISH.get(chunk.finish_reason, "stop") if chunk.finish_reason else None
        if reason == "stop" and choice.called and not self._forced:
            reason = "tool_calls"
        return Delta(index, text, tokens, reason, first, calls)

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
        return {**self._head(streamed=True), "choices": [], "usage": self.usage()}

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
        return {**self._head(streamed=False), "choices": choices, "usage": self.usage()}

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

    def _head(self, *, streamed: bool) -> Json:
        kind = "text_completion"
        if self._chat:
            kind = "chat.completion.chunk" if streamed else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._request.model}

    def _choice(self, delta: Delta, content: Json) -> Json:
        log_probs = None
        if self._request.with_log_probs:
            log_probs = _chat_log_probs(delta.tokens) if self._chat else _log_probs(delta.tokens)
        return {"index": delta.index, **content, "logprobs": log_probs, "finish_reason": delta.finish_reason}


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


def _log_probs(tokens: Sequence[Token]) -> Json:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_prob for token in tokens],
        "top_logprobs": None,
        "text_offset": [],
    }
