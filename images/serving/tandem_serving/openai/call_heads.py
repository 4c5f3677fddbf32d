"""The beginning of a call of a tool in the text that a model writes, read character by character: each once. Pure.

Readers are generators: they are sent the characters that follow, and return what they read. Each is given its first
character, and returns with the character behind what it read, where it needs that to know the end.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, NamedTuple, TypeVar

from pydantic_core import from_json

MOST_NAME = 64
"""Characters of a tool's name, as OpenAI has it."""
MOST_OTHER = 256
"""Of an `id` or a `type`: what is longer is none, and need not be held back."""
ARGUMENTS = ("arguments", "parameters")
KEYS = (*ARGUMENTS, "name", "id", "type")
CALL_ID = "[CALL_ID]"
MARKERS = (CALL_ID, "[ARGS]")
"""Behind a name; what follows the first is a word."""
T = TypeVar("T")
Reading = Generator[None, str, T]


class Head(NamedTuple):
    """`arguments`: all of them, where they do not come as they are written; `depth`: of the braces around arguments
    that come, -1: the call is over."""

    name: str
    arguments: str = ""
    depth: int = -1


class NoCall(Exception):
    """It is none."""


def read_object(tools: Collection[str] | None) -> Reading[Head]:
    """What follows the brace of a JSON object: a call. `tools`: names that it may have, None: any. Where arguments
    come, their brace is read. Raises NoCall."""
    name, arguments = "", "{}"
    character = yield from _after_space((yield))
    while character != "}" or not name:
        key = yield from _string(character, KEYS)
        character = yield from _after_space((yield))
        if character != ":":
            raise NoCall
        character = yield from _after_space((yield))
        if key in ARGUMENTS and name and character == "{":
            return Head(name, depth=1)
        if key == "name":
            name = yield from _string(character, tools)
            character = yield
        else:
            text, character = yield from _value(character, None if key in ARGUMENTS else MOST_OTHER)
            value = _decoded(text)
            if key in ARGUMENTS and value:
                arguments = value if isinstance(value, str) else text
        character = yield from _after_space(character)
        if character == ",":
            character = yield from _after_space((yield))
        elif character != "}" or not name:
            raise NoCall
    return Head(name, arguments)


def read_name(character: str, tools: Collection[str] | None) -> Reading[Head]:
    """A call that begins with its name, up to the brace of its arguments. Raises NoCall."""
    name = ""
    while character.isalnum() or character in "_.-":
        name += character
        _check_begun(name, tools)
        character = yield
    if not name or (tools is not None and name not in tools):
        raise NoCall
    while character == "[":
        marker = ""
        while marker not in MARKERS:
            marker += character
            _check_begun(marker, MARKERS)
            character = yield
        while marker == CALL_ID and (character.isalnum() or character == "_"):
            character = yield
    character = yield from _after_space(character)
    if character != "{":
        raise NoCall
    return Head(name, depth=0)


def _after_space(character: str) -> Reading[str]:
    while character.isspace():
        character = yield
    return character


def _string(character: str, wanted: Collection[str] | None) -> Reading[str]:
    """A string that is one of `wanted`, None: any, without escapes. Raises NoCall as soon as it is none."""
    if character != '"':
        raise NoCall
    text = ""
    character = yield
    while character != '"':
        text += character
        if character < " " or character == "\\":
            raise NoCall
        _check_begun(text, wanted)
        character = yield
    if not text or (wanted is not None and text not in wanted):
        raise NoCall
    return text


def _check_begun(text: str, wanted: Collection[str] | None) -> None:
    if len(text) > MOST_NAME or (wanted is not None and not any(each.startswith(text) for each in wanted)):
        raise NoCall


def _value(character: str, most: int | None) -> Reading[tuple[str, str]]:
    """A JSON value, of at most so many characters, and the character behind it. Raises NoCall: it is longer."""
    text, depth, in_string, escaped = list[str](), 0, False, False
    while in_string or depth or (character not in ",}" and not character.isspace()):
        text.append(character)
        if most is not None and len(text) > most:
            raise NoCall
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
        character = yield
    return "".join(text), character


def _decoded(text: str) -> Any:
    """Raises NoCall: it is no JSON, or nothing that can be sent as JSON again."""
    try:
        return from_json(text)
    except ValueError:
        raise NoCall from None
