"""What the endpoint knows of the model: its tokenizer's folder, brought by the server's entry point."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import CheckpointError
from tandem_serving.openai import chat_template, json_text
from tandem_serving.openai.api import ChatRequest, Message
from tandem_serving.openai.chat_template import ChatTemplate
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.thinking import Markers
from tandem_serving.openai.triton import MOST_TOKENS
from tandem_serving.requests.tokenizer import Tokenizer

LONG_TEXT = 1 << 16
"""Characters. The tokens of a longer text are counted in parts first: to tokenize it at once takes 300 bytes of
memory for each."""
CUT_TOKENS = 16
"""More than a cut in a text can add to its tokens."""
_TAIL_TOKENS = 64
"""Of a prompt, in which a thought's beginning stands."""
_ANSWER = "tandem"


class ChatModel:
    """Read at the first request that needs it: the server's container brings the files before Triton starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.created = int(time.time())

    def encode_chat(
        self, request: ChatRequest, tools: Sequence[Mapping[str, Any]] = (), most_tokens: int = MOST_TOKENS
    ) -> list[int]:
        """The tokens of a chat's prompt. The template writes the special tokens itself: none is added. Raises
        ApiError: also where there are many more than `most_tokens`."""
        messages = [_plain(message, f"messages[{at}]") for at, message in enumerate(request.messages)]
        template = self._with_tools if tools else self._template
        text = template.render(messages, request.chat_template_kwargs, tools)
        self._check_length(text, most_tokens)
        ids = self._tokenizer.encode(text, special=False)
        if not ids:
            raise ApiError(400, "the messages have no text: send some", "messages")
        return ids

    def thinks_after(self, ids: Sequence[int], markers: Markers) -> bool:
        """Whether a prompt of these tokens ends inside a thought. Raises ApiError: texts have no such markers."""
        for field, marker in {"begin": markers.begin, "end": markers.end}.items():
            if self.decode(self._tokenizer.encode(marker, special=False)).strip() != marker:
                message = (
                    f"spec.serving.openAI.thinking.{field}: {marker!r} is a special token of this model, and Triton's"
                    " models leave those out of their texts: remove spec.serving.openAI.thinking"
                )
                raise ApiError(400, message, None, "invalid_thinking_marker")
        return markers.open_in(self.decode(list(ids[-_TAIL_TOKENS:])))

    def _check_length(self, text: str, most: int) -> None:
        tokens = 0
        for start in range(0, len(text) if len(text) > LONG_TEXT else 0, LONG_TEXT):
            tokens += len(self._tokenizer.encode(text[start : start + LONG_TEXT], special=False)) - CUT_TOKENS
            if tokens > most:
                message = (
                    f"the prompt is too long, this model's maximum context length is {most} tokens, and the first"
                    f" {start + LONG_TEXT} characters of the messages have {tokens} or more: shorten them"
                )
                raise ApiError(400, message, "messages", "context_length_exceeded")

    def decode(self, ids: Any) -> str:
        """A prompt's text."""
        return self._tokenizer.decode(ids)

    def piece(self, token: int) -> str:
        """A token's text by itself; a special token's name."""
        return self._tokenizer.decode([token]) or self._tokenizer.name(token)

    @cached_property
    def turn_end(self) -> str:
        """The special token that the template writes behind an answer, where no file names it as a text's end: models
        that learned a format of chats without that would write on to `max_tokens`. "": there is none."""
        asked = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _ANSWER}]
        try:
            text = self._template.render(asked, {"add_generation_prompt": False})
        except ApiError:
            return ""
        for token in self._tokenizer.encode(text.rpartition(_ANSWER)[2].lstrip(), special=False)[:1]:
            if token not in self._tokenizer.end_ids and not self._tokenizer.decode([token]):
                return self._tokenizer.name(token)
        return ""

    @cached_property
    def _template(self) -> ChatTemplate:
        return self._read(chat_template.DEFAULT)

    @cached_property
    def _with_tools(self) -> ChatTemplate:
        return self._read(chat_template.WITH_TOOLS)

    def _read(self, name: str) -> ChatTemplate:
        try:
            return chat_template.read(self._folder, name)
        except CheckpointError as error:
            raise ApiError(400, str(error), "messages", "no_chat_template") from None

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        try:
            return Tokenizer(self._folder)
        except CheckpointError as error:
            raise ApiError(400, f"the endpoint needs the model's tokenizer.json for this: {error}") from None


def _plain(message: Message, place: str) -> dict[str, Any]:
    """A message as templates know it: text as one string, the arguments of calls as objects, no empty list of calls;
    what OpenAI calls developer they call system. Raises ApiError."""
    plain = message.model_dump(exclude_none=True)
    if isinstance(message.content, list):
        plain["content"] = "\n".join(part.text for part in message.content)  # as vLLM and trtllm-serve
    plain.setdefault("content", "")
    if not message.tool_calls:
        plain.pop("tool_calls", None)
    if thought := message.reasoning_content or message.reasoning:  # templates know one of the names
        plain |= {"reasoning_content": thought, "reasoning": thought}
    for at, call in enumerate(plain.get("tool_calls", ())):
        arguments = json_text.read_object(call["function"]["arguments"])
        if arguments is None:
            name = f"{place}.tool_calls[{at}].function.arguments"
            raise ApiError(400, f"{name} is no JSON object: send the call as it came", name, "invalid_value")
        call["function"]["arguments"] = arguments
    return {**plain, "role": "system" if message.role == "developer" else message.role}
