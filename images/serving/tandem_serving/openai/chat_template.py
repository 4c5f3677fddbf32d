"""The model's own chat template: messages become the text that the model was trained on.

Templates are Jinja, in the tokenizer's folder, rendered as transformers does it:
https://huggingface.co/docs/transformers/chat_templating_writing
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tandem_serving.checkpoint import CheckpointError, read_json
from tandem_serving.openai.errors import ApiError, unsupported

CONFIG, TEMPLATE, SPECIAL = "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"
MORE_TEMPLATES = "additional_chat_templates"
DEFAULT, WITH_TOOLS = "default", "tool_use"
"""Names of templates, as transformers has them."""
MISSING = "the model has no chat template: its tokenizer_config.json names none; ask /v1/completions"
MOST_CHARACTERS = 8 << 20
"""Of a prompt that a template makes: no model takes so many."""
RENDER_SECONDS = 10.0
TOO_MUCH_TEXT = (
    f"the chat template makes more than {MOST_CHARACTERS} characters of the messages: send fewer or shorter"
)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Refused(Exception):
    """The template's own `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}` marks what the model is trained on: here it is its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A model's template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], now: Callable[[], datetime] = datetime.now):
        """Raises CheckpointError: the template is malformed."""
        self.has_tools = "tools" in source
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: now().strftime(form)}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the model's chat template is malformed ({error}): download it again") from None
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        more: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt, with the opening of the assistant's answer. `more`: further variables. Raises ApiError."""
        if tools and not self.has_tools:
            raise unsupported("tools", "the model's chat template has no place for them; leave them out")
        defaults = {**self._special_tokens, "add_generation_prompt": True, "tools": None, "documents": None}
        given = {**({"tools": tools} if tools else {}), "messages": messages}
        try:
            return self._rendered({**defaults, **(more or {}), **given})
        except Refused as error:
            raise ApiError(400, f"the chat template refuses the messages: {error}", "messages") from None
        except RecursionError:
            message = "the chat template cannot take what is nested so deeply: send tools with flatter parameters"
            raise ApiError(400, message, "messages") from None
        except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ApiError(400, f"the chat template cannot take the messages: {error}", "messages") from None

    def _rendered(self, variables: Mapping[str, Any]) -> str:
        """In parts, as templates may repeat what a client sent for each of its messages."""
        parts, length, end = [], 0, time.monotonic() + RENDER_SECONDS
        for part in self._template.generate(variables):
            parts.append(part)
            length += len(part)
            if length > MOST_CHARACTERS:
                raise ApiError(413, TOO_MUCH_TEXT, "messages")
            if time.monotonic() > end:
                message = f"the chat template took more than {RENDER_SECONDS:g} s: send fewer messages or tools"
                raise ApiError(400, message, "messages")
        return "".join(parts)


def read(folder: Path, name: str = DEFAULT) -> ChatTemplate:
    """The template of a tokenizer's folder; `name`: of several, where there is such a one. Raises CheckpointError: it
    has none."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    special = read_json(folder / SPECIAL) if (folder / SPECIAL).is_file() else {}
    files = [folder / MORE_TEMPLATES / f"{name}.jinja", folder / TEMPLATE]
    file = next((file for file in files if file.is_file()), None)
    source = file.read_text(encoding="utf-8") if file else _named(config.get("chat_template"), name)
    if not source:
        raise CheckpointError(MISSING)
    return ChatTemplate(source, _special_tokens({**special, **config}))


def _named(template: Any, name: str) -> str:
    """tokenizer_config.json has one, or several by name."""
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get(name, named.get(DEFAULT))
    return template if isinstance(template, str) else ""


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL:
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[name] = token
    return found


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    """Jinja's own escapes HTML, which no model was trained on."""
    if indent is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    parts, length = [], 0  # what is nested deeply becomes mostly white space
    for part in json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys).iterencode(value):
        parts.append(part)
        length += len(part)
        if length > MOST_CHARACTERS:
            raise ApiError(413, TOO_MUCH_TEXT, "messages")
    return "".join(parts)


def _raise(message: str) -> NoReturn:
    raise Refused(message)
