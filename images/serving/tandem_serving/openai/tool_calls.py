"""Calls of tools in the text that a model writes, as it comes. Pure, but for the calls' ids.

Each family of models has a format of its own, which its chat template asks for:
https://docs.vllm.ai/en/latest/features/tool_calling/
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tandem_serving.requests.text import StopText


@dataclass(frozen=True)
class Format:
    """How a model writes calls. `marker`: what stands before them, empty: nothing; `between`: what else may stand
    around them; `name_first`: whether a call may also be its name, and its arguments after it."""

    marker: str
    between: tuple[str, ...]
    name_first: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """What stands around calls and is no text, but for white space."""
        return (self.marker, *self.between) if self.marker else self.between


FORMATS: Mapping[str, Format] = {
    # <tool_call>{"name": …, "arguments": {…}}</tool_call>: Qwen 2.5 and 3, Hermes 2 and 3
    "Hermes": Format("<tool_call>", ("</tool_call>",)),
    # {"name": …, "parameters": {…}}: Llama 3.1 to 3.3
    "Llama3Json": Format("<|python_tag|>", (";", ",")),
    # [TOOL_CALLS][{"name": …, "arguments": {…}}], of newer models [TOOL_CALLS]name[ARGS]{…}
    "Mistral": Format("[TOOL_CALLS]", ("[", ",", "]"), name_first=True),
}
"""By the value of `serving.openAI.toolCalls`."""
JSON_ARRAY = Format("", ("[", ",", "]"))
"""What guided decoding makes of `tool_choice: required`."""


class CallPart(NamedTuple):
    """What is new of a call. `number`: which of the answer's, from 0; `id` and `name` with its first part."""

    number: int
    id: str
    name: str
    arguments: str


def merged(parts: Iterable[CallPart]) -> list[CallPart]:
    """One part for those of a call that follow each other."""
    calls = list[CallPart]()
    for part in parts:
        if calls and calls[-1].number == part.number:
            calls[-1] = calls[-1]._replace(arguments=calls[-1].arguments + part.arguments)
        else:
            calls.append(part)
    return calls


class CallReader(Protocol):
    """Finds the calls in one choice's text."""

    def push(self, text: str, over: bool) -> tuple[str, list[CallPart]]:
        """What of the text so far is text, and what is calls; `over`: no more comes."""


def new_id() -> str:
    """Of letters and digits, nine of them: Mistral's templates refuse other ids, for others any will do."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


class NamedCall:
    """All text is the arguments of one tool: guided decoding makes it so."""

    def __init__(self, name: str, ids: Callable[[], str] = new_id) -> None:
        self._first = ids(), name

    def push(self, text: str, over: bool) -> tuple[str, list[CallPart]]:
        """See CallReader."""
        if not text:
            return "", []
        (call_id, name), self._first = self._first, ("", "")
        return "", [CallPart(0, call_id, name, text)]


class WrittenCalls:
    """Calls among text, in a model's format.

    Triton's models leave special tokens out of their text, and the marker of some models is one: so a call at the
    text's beginning, or after another, needs no marker where its name is one of `tools`. What begins like a call and
    is none is text.
    """

    def __init__(
        self, form: Format, tools: Collection[str], most: int | None = None, ids: Callable[[], str] = new_id
    ) -> None:
        """`most`: calls that are wanted; what is beyond them is left out."""
        self._form, self._tools, self._most, self._ids = form, tools, most, ids
        self._state: Callable[[bool], bool] = self._before_call
        self._rest = ""  # neither sent nor left out
        self._calls = 0
        self._arguments = _Arguments(0)
        self._text: list[str] = []
        self._parts: list[CallPart] = []

    def push(self, text: str, over: bool) -> tuple[str, list[CallPart]]:
        """See CallReader."""
        self._text, self._parts = [], []
        self._rest += text
        while self._rest and self._state(over):
            pass
        wanted = (part for part in self._parts if self._most is None or part.number < self._most)
        return "".join(self._text), merged(wanted)

    # Each state takes from the rest what it can, and returns whether the next one may go on with it.

    def _in_text(self, over: bool) -> bool:
        search = StopText([self._form.marker])
        text, found = search.push(self._rest)
        held = "" if found else search.flush()
        if over:
            text, held = text + held, ""
        self._text.append(text)
        self._rest = self._rest[len(text) :] if found else held
        self._state = self._before_call if found else self._in_text
        return found

    def _before_call(self, over: bool) -> bool:
        start, more = _lead(self._form.words, self._rest)
        marked = bool(self._form.marker) and self._form.marker in self._rest[:start]
        if more and not over:
            return False
        try:
            head = _head(self._rest[start:], self._form, None if marked else self._tools)
        except _Incomplete:
            if not over:
                return False
            head = None
        if head:
            self._begin(head)
            self._rest = self._rest[start + head.end :]
            return True
        if marked or not self._calls:
            self._text.append(self._rest[:start])
        self._rest = self._rest[start:]
        self._state = self._in_text
        return True

    def _begin(self, head: _Head) -> None:
        self._parts.append(CallPart(self._calls, self._ids(), head.name, head.arguments))
        self._calls += 1
        self._arguments = _Arguments(head.depth)
        self._state = self._before_call if head.arguments else self._in_arguments

    def _in_arguments(self, over: bool) -> bool:
        arguments, used = self._arguments.push(self._rest)
        if arguments:
            self._parts.append(CallPart(self._calls - 1, "", "", arguments))
        self._rest = self._rest[used:]
        self._state = self._before_call if self._arguments.over else self._in_arguments
        return True


def _lead(words: Collection[str], text: str) -> tuple[int, bool]:
    """Where white space and `words` at the beginning of `text` end; whether what comes next may be such a word."""
    at = 0
    while True:
        rest = text[at:]
        if any(word.startswith(rest) and word != rest for word in words):
            return at, True
        found = next((word for word in words if rest.startswith(word)), rest[:1] if rest[:1].isspace() else "")
        if not found:
            return at, False
        at += len(found)


class _Head(NamedTuple):
    """The beginning of a call. `arguments`: all of them, where they do not come as they are written; `end`: where
    they begin, or where the whole call ends; `depth`: of the braces that are open there."""

    name: str
    arguments: str
    end: int
    depth: int


class _Incomplete(Exception):
    """What comes next decides whether it is a call."""


KEYS = ("name", "arguments", "parameters", "id", "type")
_DECODER = json.JSONDecoder()
_NAME = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)")
_BEGUN_NAME = re.compile(r"([\w.-]*)(\[[\w\]]*(?:\[\w*\]?)?)?\s*$")


def _head(text: str, form: Format, tools: Collection[str] | None) -> _Head | None:
    """The call that `text` begins with; `tools`: names that it may have, None: any. Raises _Incomplete."""
    if text.startswith("{"):
        try:
            return _object(text, tools)
        except ValueError:
            return None
    return _name_first(text, tools) if form.name_first else None


def _object(text: str, tools: Collection[str] | None) -> _Head | None:
    """Raises _Incomplete; ValueError: it is no JSON."""
    name, arguments, at = "", "{}", 0
    while text[at] != "}":
        key, at = _decoded(text, _next(text, at + 1, '"'))
        at = _next(text, _next(text, at, ":") + 1)
        if key in ("arguments", "parameters") and name and text[at] == "{":
            return _Head(name, "", at, depth=1)
        value, end = _decoded(text, at)
        if key not in KEYS:
            return None
        if key == "name":
            name = value if isinstance(value, str) and (tools is None or value in tools) else ""
            if not name:
                return None
        elif key in ("arguments", "parameters") and value:
            arguments = value if isinstance(value, str) else text[at:end]
        at = _next(text, end, ",}")
    return _Head(name, arguments, at + 1, depth=0) if name else None


def _name_first(text: str, tools: Collection[str] | None) -> _Head | None:
    """Raises _Incomplete."""
    if found := _NAME.match(text):
        name = found[1]
        return _Head(name, "", found.end(), depth=0) if tools is None or name in tools else None
    begun = _BEGUN_NAME.match(text)
    if begun and (tools is None or any(tool.startswith(begun[1]) for tool in tools)):
        raise _Incomplete
    return None


def _next(text: str, at: int, wanted: str = "") -> int:
    """Where the next character is that is no white space. Raises _Incomplete; ValueError: it is not `wanted`."""
    at += len(text[at:]) - len(text[at:].lstrip())
    if at >= len(text):
        raise _Incomplete
    if wanted and text[at] not in wanted:
        raise ValueError(text[at])
    return at


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """A JSON value, and where it ends. Raises _Incomplete, also where it is malformed: then no more text helps."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise _Incomplete from None


class _Arguments:
    """Where a call's arguments, a JSON object, end, and where the call does. `outer`: braces open around them."""

    def __init__(self, outer: int) -> None:
        self._outer = self._depth = outer
        self._in_string = self._escaped = False
        self._complete = False
        self.over = False

    def push(self, text: str) -> tuple[str, int]:
        """The arguments in `text`, and how many of its characters are the call's."""
        arguments = ""
        for at, character in enumerate(text, 1):
            arguments += "" if self._complete else character
            self._read(character)
            if self.over:
                return arguments, at
        return arguments, len(text)

    def _read(self, character: str) -> None:
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self._complete = self._complete or self._depth == self._outer
            self.over = self._complete and self._depth == 0
