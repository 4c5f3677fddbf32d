"""Tools in chats: OpenAI's own client, the template, and an engine that writes what a model would."""

import contextlib
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from support.serving.openai import FakeTriton, lifespan, listening, tokenizer_folder
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.api import ChatRequest
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.tool_calls import FORMATS, Format
from tandem_serving.openai.tools import tool_use
from tandem_serving.openai.triton import Chunk

QWEN_LIKE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}"
    "{% for call in message.tool_calls %}<{{ call.function.name }}:{{ call.function.arguments.city }}>{% endfor %}"
    "{{ message.tool_call_id }}\n{% endfor %}"
)
EXAMPLE = Path(__file__).parents[4] / "examples/openai_tools.py"
TEXT = 'I look.\n<tool_call>\n{"name": "GetWeather", "arguments": {"city": "Paris"}}\n</tool_call>'


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""

    city: str


WEATHER = openai.pydantic_function_tool(GetWeather)
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [WEATHER]}
NAMED = {"type": "function", "function": {"name": "GetWeather"}}


@contextlib.contextmanager
def client(triton: FakeTriton, folder: Path, form: Format | None = FORMATS["Hermes"]) -> Iterator[openai.OpenAI]:
    endpoint = Endpoint("m", triton, ChatModel(folder), ApiKeys(None), 10000, Metrics(0), form)
    with (
        listening(application(endpoint, lifespan)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def writes(text: str, mode: str = "BLS", choices: int = 1) -> FakeTriton:
    """An engine that writes a text, three characters a chunk."""
    chunks = [Chunk(text[at : at + 3], [], [], "", {}) for at in range(0, len(text), 3)]
    answers = [(choice, chunk) for chunk in (*chunks, Chunk("", [], [], "end_id", {})) for choice in range(choices)]
    return FakeTriton(*answers, mode=mode)


def prompt(triton: FakeTriton, folder: Path) -> str:
    [call] = triton.calls
    return prompt_of(call, folder)


def prompt_of(call: Any, folder: Path) -> str:
    [tensors, *_], _ = call
    return ChatModel(folder).decode(tensors["input_ids"].reshape(-1).tolist())


def test_a_call_reaches_openai_s_types_whole_and_streamed(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, QWEN_LIKE)
    with client(writes(TEXT), folder) as openai_client:
        parsed = openai_client.chat.completions.parse(**ASK).choices[0]
        with openai_client.chat.completions.stream(**ASK) as stream:
            deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
            streamed = stream.get_final_completion().choices[0]
    assert len(deltas) > 3
    for choice in (parsed, streamed):
        assert (choice.message.content, choice.finish_reason) == ("I look.\n", "tool_calls")
        assert choice.message.tool_calls
        [call] = choice.message.tool_calls
        assert call.function.parsed_arguments == GetWeather(city="Paris")
        assert call.id


def test_calls_and_their_answers_reach_the_template(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, QWEN_LIKE)
    with client(writes(TEXT), folder) as openai_client:
        message = openai_client.chat.completions.create(**ASK).choices[0].message
    assert message.tool_calls
    answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    with client(triton := writes("It rains."), folder) as openai_client:
        said = openai_client.chat.completions.create(**{**ASK, "messages": [*ASK["messages"], message, answer]})
    assert said.choices[0].message.content == "It rains."
    assert (said.choices[0].message.tool_calls, said.choices[0].finish_reason) == (None, "stop")
    tool, *messages = prompt(triton, folder).splitlines()
    assert json.loads(tool) == WEATHER
    assert messages == ["[user]x", "[assistant]I look.", "<GetWeather:Paris>", f"[tool]rain{answer['tool_call_id']}"]


def test_answers_as_openai_s_client_has_parsed_them_are_taken_back(tmp_path: Path) -> None:
    """It sends back all that it knows of an answer; what is no message's reaches no template."""
    template = "{% for message in messages %}{{ message | tojson }}\n{% endfor %}{{ tools | length if tools }}"
    folder = tokenizer_folder(tmp_path, template)
    with client(triton := writes(TEXT), folder) as openai_client:
        message = openai_client.chat.completions.parse(**ASK).choices[0].message
        assert message.tool_calls
        assert message.tool_calls[0].function.parsed_arguments
        openai_client.chat.completions.create(**{**ASK, "messages": [*ASK["messages"], message]})
    answer = json.loads(prompt_of(triton.calls[-1], folder).splitlines()[1])
    [call] = answer.pop("tool_calls")
    assert answer == {"role": "assistant", "content": "I look.\n"}
    assert call.keys() == {"id", "type", "function"}
    assert call["function"] == {"name": "GetWeather", "arguments": {"city": "Paris"}}


NOTHING: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
SENT_BACK: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # of an assistant's message, what the template gets beside its role, why
    ({"content": None, "tool_calls": []}, {"content": ""}, "templates take an empty list for calls"),
    ({"content": "x", **NOTHING}, {"content": "x"}, "OpenAI's answers have these"),
    ({"content": "x", "reasoning": "t"}, {"content": "x", "reasoning": "t", "reasoning_content": "t"}, "vLLM's name"),
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"content": "a\nb"}, "parts"),
]


@pytest.mark.parametrize(("sent", "wanted", "reason"), SENT_BACK, ids=[row[-1] for row in SENT_BACK])
def test_what_asks_for_nothing_reaches_no_template(
    tmp_path: Path, sent: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    folder = tokenizer_folder(tmp_path, "{{ messages[-1] | tojson }}")
    messages = [*ASK["messages"], {"role": "assistant", **sent}]
    request = ChatRequest.model_validate({"model": "m", "messages": messages})
    text = ChatModel(folder).decode(ChatModel(folder).encode_chat(request))
    assert json.loads(text) == {"role": "assistant", **wanted}, reason


@pytest.mark.parametrize("arguments", ["", " ", "null", "{}", None])
def test_a_call_may_have_no_arguments(tmp_path: Path, arguments: str | None) -> None:
    folder = tokenizer_folder(tmp_path, "{{ messages[-1].tool_calls[0].function.arguments | tojson }}")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*ASK["messages"], {"role": "assistant", "tool_calls": [call]}]
    request = ChatRequest.model_validate({"model": "m", "messages": messages})
    assert ChatModel(folder).decode(ChatModel(folder).encode_chat(request)) == "{}"


def test_each_choice_has_calls_of_its_own(tmp_path: Path) -> None:
    with client(writes(TEXT, choices=2), tokenizer_folder(tmp_path, QWEN_LIKE)) as openai_client:
        choices = openai_client.chat.completions.create(**ASK, n=2).choices
    calls = [call for choice in choices for call in choice.message.tool_calls or ()]
    assert len({call.id for call in calls}) == 2


GUIDED: list[tuple[Any, str, str, str]] = [
    # tool_choice, what guided decoding makes the engine write, finish_reason, type of the schema
    ("required", '[{"name": "GetWeather", "parameters": {"city": "Oslo"}}]', "tool_calls", "array"),
    (NAMED, '{"city": "Oslo"}', "stop", "object"),
]


@pytest.mark.parametrize(("choice", "text", "reason", "kind"), GUIDED, ids=["required", "named"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_must_be_is_guided(
    tmp_path: Path, choice: Any, text: str, reason: str, kind: str, stream: bool
) -> None:
    """No format of the model's own is needed: guided decoding gives JSON."""
    folder = tokenizer_folder(tmp_path, QWEN_LIKE)
    with client(triton := writes(text, "LLMAPI"), folder, None) as openai_client:
        if stream:
            with openai_client.chat.completions.stream(**ASK, tool_choice=choice) as events:
                answer: Any = events.get_final_completion().choices[0]
        else:
            answer = openai_client.chat.completions.create(**ASK, tool_choice=choice).choices[0]
    [call] = answer.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("GetWeather", {"city": "Oslo"})
    assert (answer.message.content or "", answer.finish_reason) == ("", reason)
    [([tensors], _)] = triton.calls
    assert tensors["guided_decoding_guide_type"].item() == b"json_schema"
    assert json.loads(tensors["guided_decoding_guide"].item())["type"] == kind


def test_without_guided_decoding_a_call_cannot_be_forced(tmp_path: Path) -> None:
    refusal = ApiError(400, "guided_decoding_guide_type is not supported: leave it out")
    with (
        client(FakeTriton(refusal), tokenizer_folder(tmp_path, QWEN_LIKE)) as openai_client,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        openai_client.chat.completions.create(**ASK, tool_choice="required")
    assert refused.value.param == "tool_choice"


def test_with_tool_choice_none_the_model_does_not_know_the_tools(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, QWEN_LIKE)
    with client(triton := writes(TEXT), folder, None) as openai_client:
        answer = openai_client.chat.completions.create(**ASK, tool_choice="none").choices[0]
    assert (answer.message.content, answer.message.tool_calls) == (TEXT, None)
    assert prompt(triton, folder) == "[user]x\n"


def test_a_template_without_tools_refuses_them(tmp_path: Path) -> None:
    with (
        client(writes(TEXT), tokenizer_folder(tmp_path)) as openai_client,
        pytest.raises(openai.BadRequestError, match="chat template has no place") as refused,
    ):
        openai_client.chat.completions.create(**ASK)
    assert refused.value.param == "tools"


def test_a_call_that_was_not_json_is_refused_by_its_place(tmp_path: Path) -> None:
    function = {"name": "GetWeather", "arguments": "Paris"}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    with (
        client(writes(TEXT), tokenizer_folder(tmp_path, QWEN_LIKE)) as openai_client,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        openai_client.chat.completions.create(**{**ASK, "messages": [*ASK["messages"], call]})
    assert refused.value.param == "messages[1].tool_calls[0].function.arguments"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # changes of the request, the parameter, the message
    ({}, "tools", "spec.serving.openAI.toolCalls: Hermes, Llama3Json or Mistral"),
    ({"tools": None, "tool_choice": "auto"}, "tool_choice", "send tools"),
    ({"tools": None, "tool_choice": NAMED}, "tool_choice", "send tools"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "none of tools"),
    ({"response_format": {"type": "json_object"}}, "response_format", "exclude each other"),
]


@pytest.mark.parametrize(("changes", "param", "message"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_what_cannot_be_is_refused_by_its_name(changes: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        tool_use(ChatRequest.model_validate({**ASK, **changes}), None)
    assert refused.value.param == param


def tool(name: str, definition: dict[str, str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": definition}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_a_schema_s_references_hold_among_several_tools() -> None:
    one, other = tool("f", {"type": "string"}), tool("g", {"type": "string"})
    request = {
        **ASK,
        "tools": [one, other, {"type": "function", "function": {"name": "h"}}],
        "tool_choice": "required",
    }
    use = tool_use(ChatRequest.model_validate({**request, "parallel_tool_calls": False}), None)
    assert use.guide
    assert use.guide.json_schema
    schema = use.guide.json_schema.json_schema
    assert schema["$defs"] == {"A": {"type": "string"}}
    assert (schema["minItems"], schema["maxItems"]) == (1, 1)
    calls = schema["items"]["anyOf"]
    assert [call["properties"]["name"]["const"] for call in calls] == ["f", "g", "h"]
    assert all("$defs" not in call["properties"]["parameters"] for call in calls)
    with pytest.raises(ApiError, match="differs between two tools"):
        tool_use(ChatRequest.model_validate({**request, "tools": [one, tool("g", {"type": "number"})]}), None)


def test_the_example_makes_a_whole_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = '<tool_call>{"name": "Multiply", "arguments": {"a": 12, "b": 31}}</tool_call>'
    triton = writes(call)
    rounds = iter([triton.answers, writes("It is 372.").answers])
    generate = triton.generate

    def next_round(*asked: Any) -> Any:
        triton.answers = next(rounds)
        return generate(*asked)

    monkeypatch.setattr(triton, "generate", next_round)
    with client(triton, tokenizer_folder(tmp_path, QWEN_LIKE)) as made:
        monkeypatch.setattr(openai, "OpenAI", lambda **_: made)
        monkeypatch.setattr(sys, "argv", ["openai_tools.py", "m", "What is 12 times 31?"])
        runpy.run_path(str(EXAMPLE))
    assert capsys.readouterr().out == "Multiply: 12.0 times 31.0\nIt is 372.\n"
    assert "[tool]372.0" in prompt_of(triton.calls[-1], tmp_path)
