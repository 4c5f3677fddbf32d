"""Calls of tools in a model's text: in each format, cut at any place."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tandem_serving.openai import call_heads
from tandem_serving.openai.tool_calls import FORMATS, JSON_ARRAY, CallPart, NamedCall, WrittenCalls, merged, new_id

TOOLS = ("get_weather", "get_time")
PARIS = '{"city": "Paris", "note": "a \\"}\\" {"}'
WEATHER, TIME = ("get_weather", PARIS), ("get_time", "{}")


def written(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


CALLS: list[tuple[str, str, str, list[tuple[str, str]], str]] = [
    # format, the model's text, what of it is text, the calls, why
    (
        "Hermes",
        f"I look.\n<tool_call>\n{written(*WEATHER)}\n</tool_call>",
        "I look.\n",
        [WEATHER],
        "text before a call",
    ),
    (
        "Hermes",
        f"<tool_call>\n{written(*WEATHER)}\n</tool_call>\n<tool_call>\n{written(*TIME)}\n</tool_call>\n",
        "",
        [WEATHER, TIME],
        "two calls",
    ),
    (
        "Hermes",
        f"\n{written(*WEATHER)}\n\n{written(*TIME)}\n",
        "",
        [WEATHER, TIME],
        "markers that are special tokens",
    ),
    (
        "Hermes",
        f"<tool_call>{written('other', PARIS)}</tool_call>",
        "",
        [("other", PARIS)],
        "with a marker, any name",
    ),
    ("Hermes", f"<tool_call>{written(*TIME)}</tool_call>\nDone.", "Done.", [TIME], "text after a call"),
    ("Hermes", "<tool_call>\nno JSON\n</tool_call>", "<tool_call>\nno JSON\n</tool_call>", [], "no call"),
    ("Hermes", "<tool_call>{}", "<tool_call>{}", [], "an object without a name"),
    ("Hermes", "a <tool> b <tool_", "a <tool> b <tool_", [], "no marker"),
    ("Hermes", "  ", "  ", [], "white space alone"),
    (
        "Hermes",
        f'<tool_call>{{"name": "get_time", "arguments": {json.dumps(PARIS)}}}</tool_call>',
        "",
        [("get_time", PARIS)],
        "arguments as a string",
    ),
    (
        "Hermes",
        f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>',
        "",
        [WEATHER],
        "arguments first",
    ),
    ("Hermes", '<tool_call>{"name": "get_time"}</tool_call>', "", [TIME], "no arguments"),
    ("Hermes", '<tool_call>{"name": "get_time", "arguments": null}', "", [TIME], "null arguments, no end marker"),
    ("Hermes", '<tool_call>{"name": "f", "arguments": {"a": [1', "", [("f", '{"a": [1')], "cut by max_tokens"),
    ("Hermes", '<tool_call>{"name": "f"', '<tool_call>{"name": "f"', [], "cut before its arguments"),
    ("Llama3Json", written(*WEATHER, "parameters"), "", [WEATHER], "Llama's key"),
    ("Llama3Json", f"<|python_tag|>{written(*TIME, 'parameters')}", "", [TIME], "with the marker"),
    (
        "Llama3Json",
        f"{written(*WEATHER, 'parameters')}; {written(*TIME, 'parameters')}",
        "",
        [WEATHER, TIME],
        "two calls",
    ),
    (
        "Llama3Json",
        f'{{"type": "function", "name": "get_weather", "parameters": {PARIS}}}',
        "",
        [WEATHER],
        "a further key",
    ),
    ("Llama3Json", '{"name": "Ada", "age": 36}', '{"name": "Ada", "age": 36}', [], "an answer that is JSON"),
    ("Llama3Json", written("other", "{}"), written("other", "{}"), [], "without a marker no other name"),
    ("Mistral", "other{}", "other{}", [], "likewise"),
    ("Llama3Json", '{"city": "Rome"}', '{"city": "Rome"}', [], "JSON without a name"),
    ("Llama3Json", "{x} and", "{x} and", [], "no JSON"),
    ("Llama3Json", "It is 5; no, 6.", "It is 5; no, 6.", [], "words between calls are text elsewhere"),
    ("Mistral", f"[TOOL_CALLS][{written(*WEATHER)}, {written(*TIME)}]", "", [WEATHER, TIME], "an array"),
    ("Mistral", f"Wait.[TOOL_CALLS]get_weather{PARIS}", "Wait.", [WEATHER], "the name first"),
    (
        "Mistral",
        f"[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]get_time[CALL_ID]1a2[ARGS]{{}}",
        "",
        [WEATHER, TIME],
        "with further markers",
    ),
    ("Mistral", f"get_weather{PARIS}get_time{{}}", "", [WEATHER, TIME], "without its special tokens"),
    ("Mistral", f"[{written(*WEATHER)}]", "", [WEATHER], "an array without its special token"),
    ("Mistral", "get_weather tells more", "get_weather tells more", [], "a tool's name in a text"),
    ("Mistral", "[1, 2]", "[1, 2]", [], "an array that is text"),
    ("Mistral", "get_", "get_", [], "the beginning of a name"),
]
IDS = [f"{row[0]}: {row[-1]}" for row in CALLS]


def reader(name: str, **more: Any) -> WrittenCalls:
    numbers = itertools.count()
    form = JSON_ARRAY if name == "required" else FORMATS[name]
    return WrittenCalls(form, TOOLS, ids=lambda: str(next(numbers)), **more)


def read(found: WrittenCalls | NamedCall, chunks: Iterable[str]) -> tuple[str, list[CallPart]]:
    """All text and all parts; the last chunk is empty, as an engine's last response may be."""
    pushed = [found.push(chunk, over=False) for chunk in chunks] + [found.push("", over=True)]
    return "".join(text for text, _ in pushed), [part for _, parts in pushed for part in parts]


@pytest.mark.parametrize(("form", "text", "plain", "calls", "reason"), CALLS, ids=IDS)
def test_text_and_calls_wherever_it_is_cut(
    form: str, text: str, plain: str, calls: list[tuple[str, str]], reason: str
) -> None:
    wanted = [CallPart(at, str(at), *call) for at, call in enumerate(calls)]
    for size in (1, 2, 3, 7, len(text)):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        found, parts = read(reader(form), chunks)
        assert (found, merged(parts)) == (plain, wanted), (reason, size)


def test_arguments_are_sent_as_they_come() -> None:
    calls = reader("Hermes")
    assert calls.push('<tool_call>{"name": "f", "argu', over=False) == ("", [])
    assert calls.push('ments": {"a": ', over=False) == ("", [CallPart(0, "0", "f", '{"a": ')])
    assert calls.push("1", over=False) == ("", [CallPart(0, "", "", "1")])
    assert calls.push("}}</tool_call>", over=True) == ("", [CallPart(0, "", "", "}")])


def test_text_is_held_only_while_it_may_become_a_call() -> None:
    assert reader("Llama3Json").push('{"', over=False) == ("", []), "its first key is not read yet"
    assert reader("Llama3Json").push('{"city', over=False)[0] == '{"city'
    assert reader("Llama3Json").push('{"name": "get_weather or', over=False)[0] == '{"name": "get_weather or'
    assert reader("Llama3Json").push('{"id": "' + "x" * 300, over=False)[0] == '{"id": "' + "x" * 300
    assert reader("Hermes").push("Hello <", over=False)[0] == "Hello "
    assert reader("Mistral").push("get_wine", over=False)[0] == "get_wine"


def test_what_is_held_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may write the arguments before the name."""
    decoded = list[str]()

    def decode(text: str) -> Any:
        decoded.append(text)
        return json.loads(text)

    monkeypatch.setattr(call_heads, "from_json", decode)
    arguments = json.dumps({"text": "x" * 2000})
    calls = reader("Hermes")
    for character in f'<tool_call>{{"arguments": {arguments}, "name": "f"':
        assert calls.push(character, over=False) == ("", [])
    assert calls.push("}", over=False) == ("", [CallPart(0, "0", "f", arguments)])
    assert decoded == [arguments]


BROKEN = [
    ("Hermes", '<tool_call>{"name": "f", "parameters": "\\ud800"}', "half a character, which is no text"),
    ("Llama3Json", '{"parameters": ' + "[" * 5000 + "]" * 5000 + ', "name": "get_time"}', "nested too deeply"),
    ("Llama3Json", '{"parameters": {"a": }, "name": "get_time"}', "arguments that are no JSON"),
    ("Llama3Json", "{" * 5000, "braces"),
    ("Mistral", "[" * 5000, "brackets"),
    ("Hermes", "\n" * 5000, "white space"),
]


@pytest.mark.parametrize(("form", "text", "reason"), BROKEN, ids=[row[-1] for row in BROKEN])
def test_what_is_no_call_is_text_as_it_was_written(form: str, text: str, reason: str) -> None:
    for size in (1, 100, len(text)):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert read(reader(form), chunks) == (text, []), (reason, size)


def test_calls_beyond_those_wanted_are_left_out() -> None:
    text = f"<tool_call>{written(*WEATHER)}</tool_call><tool_call>{written(*TIME)}</tool_call>"
    assert [part.name for part in read(reader("Hermes", most=1), [text])[1]] == ["get_weather"]


def test_an_array_by_guided_decoding_is_calls() -> None:
    text = f"[{written(*WEATHER, 'parameters')},\n {written(*TIME, 'parameters')}]"
    found, parts = read(reader("required"), text)
    assert (found, [(call.name, call.arguments) for call in merged(parts)]) == ("", [WEATHER, TIME])


def test_a_forced_call_s_arguments_are_the_whole_text() -> None:
    found, parts = read(NamedCall("f", lambda: "id"), ['{"a"', ": 1}"])
    assert found == ""
    assert parts == [CallPart(0, "id", "f", '{"a"'), CallPart(0, "", "", ": 1}")]


def test_ids_suit_mistral_s_templates() -> None:
    made = {new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == 9 and each.isalnum() for each in made)
