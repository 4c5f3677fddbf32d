"""Calls of tools in the text that a model writes, as it comes. Pure, but for the calls' ids.

Each family of models has a format of its own, which its chat template asks for:
https://docs.vllm.ai/en/latest/features/tool_calling/
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tandem_serving.openai.call_heads import Head, NoCall, Reading, read_name, read_object
from tandem_serving.requests.text import StopText

SEARCHED_AGAIN = 128
"""Characters in which, where they are no call, one may begin nevertheless: so many are read twice."""


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
        self._state: Callable[[str], str] = self._in_lead
        self._lead: list[str] = []
        self._marked = False
        self._begun = ""  # of the marker, or of a word in the lead
        self._reader: Reading[Head] | None = None
        self._held: list[str] = []  # what the reader has read
        self._calls = 0
        self._arguments = _Arguments(0)
        self._text: list[str] = []
        self._parts: list[CallPart] = []

    def push(self, text: str, over: bool) -> tuple[str, list[CallPart]]:
        """See CallReader."""
        self._text, self._parts = [], []
        while text:
            text = self._state(text)
        if over:
            self._give_up()
        wanted = (part for part in self._parts if self._most is None or part.number < self._most)
        return "".join(self._text), merged(wanted)

    # Each state takes from the text what it can, and returns what is for the next one.

    def _in_text(self, text: str) -> str:
        text, self._begun = self._begun + text, ""
        search = StopText([self._form.marker])
        before, found = search.push(text)
        self._text.append(before)
        if found:
            self._state = self._in_lead
            return text[len(before) :]
        self._begun = search.flush()
        return ""

    def _in_lead(self, text: str) -> str:
        """White space and words around calls, of which one may be the beginning of another."""
        words = self._form.words
        for at, character in enumerate(text):
            begun = self._begun + character
            if any(word.startswith(begun) for word in words):
                self._begun = begun
            elif self._begun in words:
                self._take_word()
                return text[at:]
            elif not self._begun and character.isspace():
                self._lead.append(character)
            else:
                self._begun = ""
                return self._begin_head(begun + text[at + 1 :])
        if self._begun in words and not any(word.startswith(self._begun) and word != self._begun for word in words):
            self._take_word()
        return ""

    def _take_word(self) -> None:
        self._marked = self._marked or (bool(self._form.marker) and self._begun == self._form.marker)
        self._lead.append(self._begun)
        self._begun = ""

    def _begin_head(self, text: str) -> str:
        tools, first = None if self._marked else self._tools, text[0]
        if first != "{" and not self._form.name_first:
            return self._no_call(text)
        self._reader = read_object(tools) if first == "{" else read_name(first, tools)
        self._held, self._state = [first], self._in_head
        try:
            next(self._reader)
        except NoCall:
            return self._no_call(text)
        return text[1:]

    def _in_head(self, text: str) -> str:
        assert self._reader
        for at, character in enumerate(text):
            try:
                self._reader.send(character)
            except StopIteration as done:
                self._begin_call(done.value)
                return text[at + 1 :]
            except NoCall:
                held = "".join(self._held)
                if len(held) <= SEARCHED_AGAIN:
                    return self._no_call(held + text[at:])
                self._no_call("")
                self._text.append(held)
                return text[at:]
            self._held.append(character)
        return ""

    def _no_call(self, text: str) -> str:
        if self._marked or not self._calls:
            self._text += self._lead
        self._lead, self._marked, self._state = [], False, self._in_text
        return text

    def _begin_call(self, head: Head) -> None:
        streamed = head.depth >= 0
        self._parts.append(CallPart(self._calls, self._ids(), head.name, "{" if streamed else head.arguments))
        self._calls += 1
        self._lead, self._marked, self._state = [], False, self._in_arguments if streamed else self._in_lead
        if streamed:
            self._arguments = _Arguments(head.depth)
            self._arguments.push("{")

    def _in_arguments(self, text: str) -> str:
        arguments, used = self._arguments.push(text)
        if arguments:
            self._parts.append(CallPart(self._calls - 1, "", "", arguments))
        if self._arguments.over:
            self._state = self._in_lead
        return text[used:]

    def _give_up(self) -> None:
        """No more comes: what began like a call is none."""
        held = self._held if self._state == self._in_head else []
        if self._state != self._in_arguments:
            self._no_call("")
        self._text += [*held, self._begun]
        self._begun = ""


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
