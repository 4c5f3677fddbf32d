"""Requests of OpenAI's API: what is refused, by which name, and what asks for nothing."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types import chat, completion_create_params
from openai.types.chat import chat_completion_chunk
from openai.types.chat import completion_create_params as chat_params
from openai.types.chat.chat_completion_named_tool_choice_param import Function as NamedFunction
from openai.types.chat.parsed_function_tool_call import ParsedFunction
from openai.types.shared_params import FunctionDefinition
from openai.types.shared_params import response_format_json_schema as json_schema
from pydantic import ValidationError

from tandem_serving.openai import api, fields
from tandem_serving.openai.api import ChatRequest, CompletionRequest, parse
from tandem_serving.openai.errors import ApiError

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}
IMAGE = [{"type": "image_url", "image_url": {"url": "x"}}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}


def message(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "x", **more}]}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # changes of a chat request, the parameter that is named, the code
    ({"temperature": "1"}, "temperature", "invalid_value"),
    ({"temperature": 2.5}, "temperature", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 129}, "n", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": 1 << 31}, "max_completion_tokens", "invalid_value"),
    ({"stream": 1}, "stream", "invalid_value"),
    ({"stop": ["a"] * 65}, "stop", "invalid_value"),
    ({"stop": ["a", "b" * 1025]}, "stop[1]", "invalid_value"),
    ({"messages": CHAT["messages"] * 2049}, "messages", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[0].type", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [TOOL] * 129}, "tools", "invalid_value"),
    ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"logit_bias": {"50256": -100}}, "logit_bias", "unsupported_parameter"),
    ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "unsupported_parameter"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
    ({"temprature": 1}, "temprature", "unknown_parameter"),
    ({"add_generation_prompt": False}, "add_generation_prompt", "unsupported_parameter"),
    ({"chat_template_kwargs": {"tools": [TOOL]}}, "chat_template_kwargs.tools", "unsupported_parameter"),
    (
        {"chat_template_kwargs": {"continue_final_message": True}},
        "chat_template_kwargs.continue_final_message",
        "unsupported_parameter",
    ),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "unknown_parameter"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "unsupported_parameter",
    ),
    ({"moderation": {"model": "m", "policy": {}}}, "moderation.policy", "unsupported_parameter"),
    ({"moderation": {"modle": "m"}}, "moderation.modle", "unknown_parameter"),
    (message(prefix=True), "messages[0].prefix", "unsupported_parameter"),
    (message(partial=True), "messages[0].partial", "unsupported_parameter"),
    (message(contents="x"), "messages[0].contents", "unknown_parameter"),
    (message(refusal="I cannot"), "messages[0].refusal", "unsupported_parameter"),
    (message(audio={"id": "1"}), "messages[0].audio", "unsupported_parameter"),
    (message(content=[{"type": "text", "text": "x", "txt": 1}]), "messages[0].content[0].txt", "unknown_parameter"),
    (message(tool_calls=[CALL, {**CALL, "idx": 1}]), "messages[0].tool_calls[1].idx", "unknown_parameter"),
    ({"tools": [{**TOOL, "stric": True}]}, "tools[0].stric", "unknown_parameter"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameter": {}}}]},
        "tools[0].function.parameter",
        "unknown_parameter",
    ),
    ({"tools": [TOOL], "tool_choice": {**TOOL, "name": "f"}}, "tool_choice.name", "unknown_parameter"),
    ({"response_format": {**SCHEMA, "strict": True}}, "response_format.strict", "unknown_parameter"),
]
PASS: list[dict[str, Any]] = [
    dict.fromkeys(["n", "stream", "stop", "temperature", "logit_bias", "tools", "response_format", "max_tokens"]),
    {"logit_bias": {}, "tools": [], "tool_choice": "none", "top_logprobs": 0, "modalities": ["text"]},
    {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "u"},
    {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "implicit"}},
    {"prediction": {"type": "content", "content": "x"}, "moderation": {"model": "m"}, "verbosity": "medium"},
    {"chat_template_kwargs": {"enable_thinking": False, "add_generation_prompt": False, "tools": None}},
    {"add_generation_prompt": True, "continue_final_message": False, "best_of": 1, "skip_special_tokens": True},
    message(content=None, refusal=None, annotations=[], audio=None, function_call=None, tool_calls=[], prefix=False),
    message(tool_calls=[{**CALL, "index": 0}], name="n", reasoning_content="t", provider_specific_fields={"a": 1}),
    message(content=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]),
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"any": {"thing": None}}}}]},
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
    {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"temperature": 1, "top_p": 1, "seed": -3, "presence_penalty": -2},
]


def body(base: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**base, **changes}).encode()


@pytest.mark.parametrize(("changes", "param", "code"), REFUSED, ids=[f"{row[1]} {row[0]}" for row in REFUSED])
def test_what_is_refused_is_named(changes: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse(ChatRequest, body(CHAT, **changes))
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)
    assert str(refused.value).startswith(param)


@pytest.mark.parametrize("changes", PASS, ids=[" ".join(each) for each in PASS])
def test_what_asks_for_nothing_passes(changes: dict[str, Any]) -> None:
    request = parse(ChatRequest, body(CHAT, **changes))
    assert (request.n, request.stream, request.stops, request.most_tokens) == (1, False, (), None)


LEVELS: list[tuple[str, type[Any], tuple[Any, ...]]] = [
    # the level, the class of what is served there, OpenAI's types: of requests, and of answers that clients send back
    ("", ChatRequest, (chat_params.CompletionCreateParamsBase, chat_params.CompletionCreateParamsStreaming)),
    ("", CompletionRequest, (completion_create_params.CompletionCreateParamsBase,)),
    ("stream_options", api.StreamOptions, (chat.ChatCompletionStreamOptionsParam,)),
    ("response_format", api.ResponseFormat, (*get_args(chat_params.ResponseFormat),)),
    ("response_format.json_schema", api.JsonSchema, (json_schema.JSONSchema,)),
    ("messages[]", api.Message, (*get_args(chat.ChatCompletionMessageParam), chat.ParsedChatCompletionMessage)),
    ("messages[].content[]", api.TextPart, (chat.ChatCompletionContentPartTextParam,)),
    (
        "messages[].tool_calls[]",
        api.ToolCall,
        (chat.ParsedFunctionToolCall, chat_completion_chunk.ChoiceDeltaToolCall),
    ),
    ("messages[].tool_calls[].function", api.CalledFunction, (ParsedFunction,)),
    ("tools[]", api.Tool, (chat.ChatCompletionToolParam,)),
    ("tools[].function", api.Function, (FunctionDefinition,)),
    ("tool_choice", api.NamedTool, (chat.ChatCompletionNamedToolChoiceParam,)),
    ("tool_choice.function", api.ToolName, (NamedFunction,)),
]


@pytest.mark.parametrize(("level", "served", "types"), LEVELS, ids=[f"{row[0]} {row[1].__name__}" for row in LEVELS])
def test_each_field_of_openai_s_types_is_served_or_has_a_reason(
    level: str, served: type[Any], types: tuple[Any, ...]
) -> None:
    theirs = {name for each in types for name in getattr(each, "model_fields", None) or each.__annotations__}
    ours = {field.alias or name for name, field in served.model_fields.items()} | fields.LEVELS[level].keys()
    assert theirs - ours == set()


def test_the_page_names_what_requests_may_not_have() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/openai.md").read_text()
    assert [name for name in fields.LEVELS[""] if f"`{name}`" not in page] == []


def test_a_misspelt_name_gets_the_right_one() -> None:
    for changes, near in (
        ({"temprature": 1}, "temperature"),
        ({"stream": True, "stream_options": {"include_usgae": True}}, "include_usage"),
        ({"response_format": {"type": "json_object", "shema": {}}}, "schema"),
    ):
        with pytest.raises(ApiError, match=f"did you mean {near}"):
            parse(ChatRequest, body(CHAT, **changes))
    with pytest.raises(ApiError, match=f"^{'x' * 64} is not known"):
        parse(ChatRequest, body(CHAT, **{"x" * 100_000: 1}))


def test_a_schema_beside_json_object_is_the_text_s() -> None:
    own = parse(ChatRequest, body(CHAT, response_format={"type": "json_object", "schema": {"a": 1}})).response_format
    assert own
    assert own.schema_of_text == {"a": 1}


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({"type": "json_schema"}, "response_format"),
        ({**SCHEMA, "type": "json_object"}, "response_format.json_schema"),
        ({**SCHEMA, "type": "text"}, "response_format.json_schema"),
        ({**SCHEMA, "schema": {}}, "response_format.schema"),
    ],
)
def test_a_schema_stands_where_its_type_has_it(wanted: dict[str, Any], param: str) -> None:
    found = api.ResponseFormat.model_validate(wanted)
    with pytest.raises(ApiError) as refused:
        _ = found.schema_of_text
    assert refused.value.param == param


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ApiError, match=r"^messages: Field required"):
        parse(ChatRequest, b'{"model": "m"}')


MANY = 200_000
COSTLY: list[tuple[bytes, int, str]] = [
    # a body that would take too much memory or time, the status, what the answer says
    (b'{"prompt": [' + b"{}," * 20_000 + b"{}]}", 413, "16384 JSON objects"),
    (b'{"prompt": [' + b"1," * 2 * MANY + b"1]}", 413, "262144 JSON values"),
    (b'{"prompt": [' + b'"",' * 2 * MANY + b'""]}', 413, "262144 JSON values"),
    (b'{"prompt": "' + b"\\" * 3 * MANY + b'", "a": [' + b"1," * 2 * MANY, 413, "262144 JSON values"),
    (b'{"prompt": "' + b'\\",' * 2 * MANY, 400, "no JSON"),
    (b"[" * MANY, 400, "recursion limit"),
    (b'{"seed": ' + b"1" * MANY + b"}", 400, "number out of range"),
    (b'{"prompt": "\\ud800"}', 400, "no JSON"),
]


@pytest.mark.parametrize(("text", "status", "says"), COSTLY, ids=[str(at) for at in range(len(COSTLY))])
def test_a_costly_body_is_refused_before_it_is_read(text: bytes, status: int, says: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse(CompletionRequest, text)
    assert (refused.value.status, says in str(refused.value)) == (status, True)


def test_signs_in_a_text_are_no_values() -> None:
    text = 'a,{[\\"' * MANY
    assert parse(CompletionRequest, body(COMPLETION, prompt=text)).prompts == [text]


FAULTY = [({"prompt": [{}] * 1000}, CompletionRequest), ({"messages": [1] * 1000}, ChatRequest)]
FAULTY += [({"messages": [{"role": "user", "content": [1] * 1000}]}, ChatRequest)]
FAULTY += [({"stop": [1] * 64, "messages": [{"role": "user", "content": "x"}]}, ChatRequest)]
FAULTY += [({"messages": [{"role": "user", "tool_calls": [1] * 1000}]}, ChatRequest)]
FAULTY += [({"tools": [1] * 128, **CHAT}, ChatRequest)]


@pytest.mark.parametrize(("given", "kind"), FAULTY, ids=[str(at) for at in range(len(FAULTY))])
def test_a_list_of_faults_is_one_fault(given: dict[str, Any], kind: type[ChatRequest | CompletionRequest]) -> None:
    """Pydantic makes an error for each, and for each type that it might be: a hundred times the body's memory."""
    with pytest.raises(ValidationError) as faults:
        kind.model_validate({"model": "m", **given})
    assert faults.value.error_count() <= 3


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"model": "m", "model'])
def test_no_json_and_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse(ChatRequest, text)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_are_texts_or_tokens(prompt: Any, wanted: Any) -> None:
    assert parse(CompletionRequest, body(COMPLETION, prompt=prompt)).prompts == wanted


def test_a_request_has_no_more_sequences_than_the_queue() -> None:
    prompts = ["a"] * 512
    assert len(parse(CompletionRequest, body(COMPLETION, prompt=prompts, n=2)).prompts) == 512
    with pytest.raises(ApiError, match="more than 1024 sequences"):
        _ = parse(CompletionRequest, body(COMPLETION, prompt=prompts, n=3)).prompts


def test_no_token_is_beyond_all_vocabularies() -> None:
    for prompt in ([1 << 40], [[-1]]):
        with pytest.raises(ApiError, match=r"^prompt"):
            parse(CompletionRequest, body(COMPLETION, prompt=prompt))


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], ["a", ""]])
def test_no_prompt_is_empty(prompt: Any) -> None:
    with pytest.raises(ApiError, match="prompt is empty"):
        _ = parse(CompletionRequest, body(COMPLETION, prompt=prompt)).prompts


def test_completions_have_16_tokens_and_the_chosen_tokens_log_probs_alone() -> None:
    assert parse(CompletionRequest, body(COMPLETION)).most_tokens == 16
    assert parse(CompletionRequest, body(COMPLETION, logprobs=0)).with_log_probs
    with pytest.raises(ApiError, match="send 0"):
        parse(CompletionRequest, body(COMPLETION, logprobs=1))
    for echo in (True, False):
        asked = parse(CompletionRequest, body(COMPLETION, logprobs=0, echo=echo))
        assert (asked.with_log_probs, asked.with_prompt_log_probs) == (True, echo)
    assert not parse(CompletionRequest, body(COMPLETION, echo=True)).with_prompt_log_probs


def test_options_of_streams_are_for_streams() -> None:
    options = {"include_usage": True}
    assert parse(ChatRequest, body(CHAT, stream=True, stream_options=options)).include_usage
    with pytest.raises(ApiError, match="stream_options is for streams"):
        parse(ChatRequest, body(CHAT, stream_options=options))
