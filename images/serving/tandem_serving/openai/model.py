"""What the endpoint knows of the model: its tokenizer's folder, brought by the server's entry point."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import CheckpointError
from tandem_serving.openai import chat_template
from tandem_serving.openai.api import ChatRequest, Message
from tandem_serving.openai.chat_template import ChatTemplate
from tandem_serving.openai.errors import ApiError
from tandem_serving.requests.tokenizer import Tokenizer

_ANSWER = "tandem"


class ChatModel:
    """Read at the first request that needs it: the server's container brings the files before Triton starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.created = int(time.time())

    def encode_chat(self, request: ChatRequest, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The tokens of a chat's prompt. The template writes the special tokens itself: none is added. Raises
        ApiError."""
        messages = [_plain(message, f"messages[{at}]") for at, message in enumerate(request.messages)]
        template = self._with_tools if tools else self._template
        text = template.render(messages, request.chat_template_kwargs, tools)
        ids = self._tokenizer.encode(text, special=False)
        if not ids:
            raise ApiError(400, "the messages have no text: send some", "messages")
        return ids

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
    """A message as templates know it: text as one string, the arguments of calls as objects; what OpenAI calls
    developer they call system. Raises ApiError."""
    plain = message.model_dump(exclude_none=True)
    if isinstance(message.content, list):
        plain["content"] = "".join(part.text for part in message.content)
    plain.setdefault("content", "")
    for at, call in enumerate(plain.get("tool_calls", ())):
        arguments = _object(call["function"]["arguments"])
        if arguments is None:
            name = f"{place}.tool_calls[{at}].function.arguments"
            raise ApiError(400, f"{name} is no JSON object: send the call as it came", name, "invalid_value")
        call["function"]["arguments"] = arguments
    return {**plain, "role": "system" if message.role == "developer" else message.role}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
