"""OpenAI's own client against the endpoint, in both modes, on the real Triton and the pair."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families

from support import environments
from triton import bls_client as bls
from triton import llmapi_client
from triton.bls_client import PAIR, SECONDS
from triton.harness import TritonServer
from triton.hostile import JSON, Others, Row, check, request, sends
from triton.hostile_rows import BODIES, CONNECTIONS
from triton.openai_endpoint import NAME, OpenAiEndpoint
from triton.waits import eventually, metric

PROMPT = "def fib(n):\n"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": PROMPT}]
SPECULATIVE = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 2}}
BUSY = {"max_running_sequences": 2}


@pytest.fixture(scope="module", params=["BLS", "LLMAPI"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TritonServer, OpenAiEndpoint, str]]:
    folder = tmp_path_factory.mktemp("openai") / "models"
    if request.param == "BLS":
        bls.repository(folder, "reference", max_draft_len=4, max_engine_rows=16, max_batch_size=16)
    else:
        llmapi_client.repository(folder, SPECULATIVE, engine="Tandem")
    with TritonServer(folder) as server, OpenAiEndpoint(server, request.param, PAIR / "target") as endpoint:
        yield server, endpoint, request.param


@pytest.fixture
def client(served: tuple[TritonServer, OpenAiEndpoint, str]) -> Iterator[openai.OpenAI]:
    with served[1].client() as client:
        yield client


def complete(client: openai.OpenAI, **more: Any) -> Any:
    given = {"model": NAME, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **more}
    return client.completions.create(**given)


def chat(client: openai.OpenAI, **more: Any) -> Any:
    given = {"model": NAME, "messages": MESSAGES, "max_tokens": 24, "temperature": 0, **more}
    return client.chat.completions.create(**given)


def test_a_stream_adds_up_to_the_whole_answer(client: openai.OpenAI) -> None:
    whole = complete(client)
    [choice] = whole.choices
    assert choice.text
    assert (choice.finish_reason, whole.object, whole.model) == ("length", "text_completion", NAME)
    chunks = list(complete(client, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert len(chunks) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_chat_is_the_template_s_text_continued(client: openai.OpenAI) -> None:
    """The pair's template gives the messages' text as it is."""
    answer = chat(client)
    assert answer.choices[0].message.content == complete(client).choices[0].text
    assert answer.choices[0].message.role == "assistant"
    deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == answer.choices[0].message.content
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)


def assert_told(acceptance: dict[str, Any], usage: Any) -> None:
    """By rounds what the usage has of all."""
    rounds = acceptance["acceptance_histogram"]
    accepted = sum(tokens * count for tokens, count in enumerate(rounds))
    assert (accepted, sum(rounds)) == (usage.accepted_prediction_tokens, acceptance["num_spec_steps"])
    assert acceptance["num_draft_tokens"] == accepted + usage.rejected_prediction_tokens


def test_usage_tells_what_the_draft_was_worth(client: openai.OpenAI) -> None:
    usage = chat(client).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 24, 31)
    details = usage.completion_tokens_details
    assert 0 < details.accepted_prediction_tokens < 24
    assert details.rejected_prediction_tokens > 0
    assert_told(chat(client).metrics["speculative_decoding"], details)
    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert_told(last.metrics["speculative_decoding"], details)
    assert last.choices == []
    assert last.usage.completion_tokens == 24
    assert {chunk.usage for chunk in chunks} == {None}


def test_a_stop_word_ends_the_text_before_it(client: openai.OpenAI) -> None:
    text = complete(client).choices[0].text
    word = text[len(text) // 2 :][:3]
    for chunks in ([complete(client, stop=word)], list(complete(client, stop=[word, "\x00"], stream=True))):
        assert "".join(chunk.choices[0].text for chunk in chunks) == text[: text.index(word)]
        assert chunks[-1].choices[0].finish_reason == "stop"


def test_choices_are_sequences_of_their_own_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    def texts(**more: Any) -> list[str]:
        choices = chat(client, n=3, temperature=1, **more).choices
        assert [choice.index for choice in choices] == [0, 1, 2]
        return [choice.message.content for choice in choices]

    assert len(set(texts())) == 3
    assert texts() != texts(), "without a seed each request draws anew"
    assert texts(seed=5) == texts(seed=5)
    assert texts(seed=5)[1:] == texts(seed=6)[:2], "each choice has the next seed"


def test_more_prompts_than_triton_takes_in_a_batch(client: openai.OpenAI) -> None:
    prompts = [PROMPT, "import os\n", "x = ["] * 7
    answer = complete(client, prompt=prompts, max_tokens=4)
    assert [choice.index for choice in answer.choices] == list(range(21))
    alone = [complete(client, prompt=prompt, max_tokens=4).choices[0].text for prompt in prompts[:3]]
    assert [choice.text for choice in answer.choices] == alone * 7


def test_tokens_are_a_prompt_and_echo_repeats_it(client: openai.OpenAI) -> None:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(PAIR / "target/tokenizer.json")).encode(PROMPT).ids
    text = complete(client).choices[0].text
    assert complete(client, prompt=ids).choices[0].text == text
    for prompt in (PROMPT, ids):
        assert complete(client, prompt=prompt, echo=True).choices[0].text == PROMPT + text
    chunks = list(complete(client, echo=True, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == PROMPT + text


def test_without_a_limit_the_model_s_is_the_limit(client: openai.OpenAI) -> None:
    usage = chat(client, max_tokens=None, messages=[{"role": "user", "content": "x = 1\n" * 400}]).usage
    assert usage.total_tokens == 2048


def test_log_probs_are_of_the_answer_s_tokens(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="of a prompt") as refused:
        complete(client, logprobs=0, echo=True)
    assert refused.value.param == "echo"
    answer = chat(client, logprobs=True).choices[0]
    assert "".join(token.token for token in answer.logprobs.content) == answer.message.content
    assert all(token.logprob <= 0 for token in answer.logprobs.content)
    assert answer.logprobs.content[0].bytes == list(answer.logprobs.content[0].token.encode())
    assert complete(client, logprobs=0).choices[0].logprobs.token_logprobs == [
        token.logprob for token in answer.logprobs.content
    ]


REFUSED = [
    # changes of a chat request, the parameter that the answer names
    ({"temperature": 3}, "temperature"),
    ({"logit_bias": {"1": 5}}, "logit_bias"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"top_logprobs": 3, "logprobs": True}, "top_logprobs"),
    ({"extra_body": {"best": 1}}, "best"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0]"),
]


@pytest.mark.parametrize(("changes", "param"), REFUSED, ids=[row[1] for row in REFUSED])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_served_is_refused_by_its_name(
    client: openai.OpenAI, changes: dict[str, Any], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, stream=stream, **changes)
    assert (refused.value.param or "").startswith(param)


TOO_LONG = [{"max_tokens": 4000}, {"messages": [{"role": "user", "content": PROMPT * 1000}]}]


@pytest.mark.parametrize("changes", TOO_LONG, ids=["with its answer", "prompt"])
def test_a_text_that_is_too_long_has_openai_s_code(client: openai.OpenAI, changes: dict[str, Any]) -> None:
    with pytest.raises(
        openai.BadRequestError, match="prompt is too long, this model's maximum context length is 2048"
    ) as refused:
        chat(client, **changes)
    assert refused.value.code == "context_length_exceeded"


def test_other_models_and_embeddings_are_not_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError, match="not served here"):
        chat(client, model="gpt-4")
    with pytest.raises(openai.NotFoundError, match="embeddings"):
        client.embeddings.create(model=NAME, input="x")


def test_a_client_that_leaves_ends_its_sequence(
    client: openai.OpenAI, served: tuple[TritonServer, OpenAiEndpoint, str]
) -> None:
    server, _, _ = served
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "an idle server")
    before = metric(server, "tandem_generation_tokens_total")
    stream = chat(client, max_tokens=None, stream=True)
    next(iter(stream))
    stream.close()
    with pytest.raises(openai.APITimeoutError):  # one that waits for a whole answer
        chat(client.with_options(timeout=1), max_tokens=None)
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "both ends")
    assert metric(server, "tandem_generation_tokens_total") - before < 2 * 1500


def test_its_metrics_have_what_an_endpoint_picker_reads(
    client: openai.OpenAI, served: tuple[TritonServer, OpenAiEndpoint, str]
) -> None:
    def values() -> dict[str, float]:
        with urllib.request.urlopen(f"{served[1].url}/metrics", timeout=10) as reply:
            families = list(text_string_to_metric_families(reply.read().decode()))
        return {sample.name: sample.value for family in families for sample in family.samples}

    stream = chat(client, max_tokens=None, stream=True)
    next(iter(stream))
    eventually(lambda: values().get("vllm:num_requests_running") == 1, "the sequence runs")
    if served[2] == "BLS":  # in mode LLMAPI the engine reports it with enable_iter_perf_stats
        eventually(lambda: 0 < values().get("vllm:kv_cache_usage_perc", 0) <= 1, "it holds blocks of the KV cache")
    stream.close()
    eventually(lambda: values()["vllm:num_requests_running"] == 0, "it ends")
    assert values()["vllm:num_requests_waiting"] == 0


def test_many_at_once_equal_one_by_one(client: openai.OpenAI) -> None:
    prompts = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()[:6]]

    def text(prompt: str) -> str:
        return "".join(chunk.choices[0].text for chunk in complete(client, prompt=prompt, stream=True))

    alone = [text(prompt) for prompt in prompts]
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(text, prompts * 2)) == alone * 2


def test_sigterm_lets_streams_end(served: tuple[TritonServer, OpenAiEndpoint, str]) -> None:
    server, _, mode = served
    with OpenAiEndpoint(server, mode, PAIR / "target") as endpoint, endpoint.client() as client:
        stream = chat(client, max_tokens=300, stream=True)
        first = next(iter(stream))
        endpoint.process.terminate()
        eventually(lambda: refused(endpoint), "new connections are refused")
        text = first.choices[0].delta.content + "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert text == chat(client_of(served), max_tokens=300).choices[0].message.content
        assert endpoint.process.wait(120) == 0


def refused(endpoint: OpenAiEndpoint) -> bool:
    try:
        endpoint.client().models.list()
    except openai.APIConnectionError:
        return True
    return False


def client_of(served: tuple[TritonServer, OpenAiEndpoint, str]) -> openai.OpenAI:
    return served[1].client()


def test_a_key_that_changes_holds_at_once(served: tuple[TritonServer, OpenAiEndpoint, str], tmp_path: Path) -> None:
    server, _, mode = served
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "team").write_text("one\ntwo\n")
    options = ("--keys", str(keys), "--max-body", "300")
    with OpenAiEndpoint(server, mode, tmp_path, *options) as endpoint:
        for key in ("one", "two"):
            assert complete(endpoint.client(key)).choices
        (keys / "team").write_text("three\n")
        assert complete(endpoint.client("three")).choices
        for call in (complete, chat, lambda client: client.models.list()):
            with pytest.raises(openai.AuthenticationError):
                call(endpoint.client("one"))
        with pytest.raises(openai.APIStatusError) as large:
            complete(endpoint.client("three"), prompt="x" * 400)
        assert large.value.status_code == 413
        with pytest.raises(openai.BadRequestError, match="no chat template"):  # nor is there one in this folder
            chat(endpoint.client("three"))


CALL = {"a": 12, "b": 31}
ADD = {"type": "object", "properties": {name: {"type": "integer"} for name in CALL}}
TOOLS = [{"type": "function", "function": {"name": "Add", "description": "Add two numbers.", "parameters": ADD}}]
# The pair knows no tools. It goes on with what stands there six times: a call of the first one, in the format Hermes.
TEMPLATE = """{% if tools and messages[-1].role == "user" %}{% for _ in range(6) %}
<tool_call>{"name": "{{ tools[0].function.name }}", "arguments": CALL}</tool_call>{{ "\\n" }}{% endfor %}
{%- else %}{% for message in messages %}{{ message.content or "" }}{% endfor %}{% endif %}
""".replace("CALL", json.dumps(CALL))
only_bls = pytest.mark.parametrize("served", ["BLS"], indirect=True)


@pytest.fixture(scope="module")
def with_tools(
    served: tuple[TritonServer, OpenAiEndpoint, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAiEndpoint]:
    """An endpoint of the same model, which writes calls of tools."""
    folder = tmp_path_factory.mktemp("tools")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(PAIR / "target" / name, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    options = ("--tool-calls", "Hermes", "--thinking-begin=<think>", "--thinking-end=</think>")
    with OpenAiEndpoint(served[0], served[2], folder, *options) as endpoint:
        yield endpoint


def test_a_model_s_call_of_a_tool(with_tools: OpenAiEndpoint) -> None:
    asked = {"tools": TOOLS, "stop": "\n", "max_tokens": 64}
    with with_tools.client() as client:
        choice = chat(client, **asked).choices[0]
        deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True, **asked)]
    [call] = choice.message.tool_calls
    assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")
    assert (call.function.name, json.loads(call.function.arguments)) == ("Add", CALL)
    parts = [part.function for delta in deltas for part in delta.tool_calls or ()]
    assert [part.name for part in parts if part.name] == ["Add"]
    assert len(parts) > 2, "as the model writes them"
    assert "".join(part.arguments or "" for part in parts) == call.function.arguments


def test_a_stop_word_in_a_thought_ends_nothing(
    with_tools: OpenAiEndpoint, served: tuple[TritonServer, OpenAiEndpoint, str]
) -> None:
    """The pair goes on with what stands there six times. The endpoint finds the word, and ends the sequence."""
    server = served[0]
    answer = "<think>x = 1\ny = 2</think>z = 3\n"
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": answer * 6}]
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "an idle server")
    before = metric(server, "tandem_generation_tokens_total")
    with with_tools.client() as client:
        asked = {"messages": messages, "stop": "\n", "max_tokens": None}
        whole = chat(client, **asked)
        chunks = list(chat(client, stream=True, **asked))
    assert whole.choices[0].message.content == answer.rstrip()
    assert whole.choices[0].finish_reason == "stop"
    assert 0 < whole.usage.completion_tokens < 64
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.rstrip()
    eventually(lambda: metric(server, "tandem_requests_running") == 0, "both ends")
    assert metric(server, "tandem_generation_tokens_total") - before < 2 * 1500


@only_bls
@pytest.mark.parametrize("row", [*BODIES, *CONNECTIONS], ids=lambda row: row.name)
def test_an_attack_harms_no_other_client(
    client: openai.OpenAI, served: tuple[TritonServer, OpenAiEndpoint, str], row: Row
) -> None:
    endpoint = served[1]

    def stream() -> Iterator[Any]:
        while True:
            yield from chat(client, max_tokens=1500, stream=True)

    def live() -> None:
        with urllib.request.urlopen(f"{endpoint.url}/live", timeout=SECONDS) as reply:
            assert reply.status == 200

    check(row, endpoint.port, Others(endpoint.process.pid, stream, live))


def test_a_client_that_closes_its_side_is_answered(served: tuple[TritonServer, OpenAiEndpoint, str]) -> None:
    body = json.dumps({"model": NAME, "prompt": PROMPT, "max_tokens": 24, "temperature": 0}).encode()
    [answer] = sends(request("/v1/completions", body, JSON), half_close=True)(served[1].port)
    assert answer.status == 200
    assert json.loads(answer.text)["choices"][0]["text"] == complete(client_of(served)).choices[0].text


LOCK = Path(__file__).with_name("clients-requirements.txt")
"""LiteLLM needs another python-dateutil than the operator."""
CLIENTS = {
    # the classes of errors: a parameter that is refused, a text that is too long
    "langchain": ("OpenAIInvalidRequestError", "OpenAIContextOverflowError"),
    "litellm": ("BadRequestError", "ContextWindowExceededError"),
}


@only_bls
@pytest.mark.nightly  # an environment of its own, of 90 packages
@pytest.mark.parametrize("library", CLIENTS)
def test_clients_by_others(client: openai.OpenAI, with_tools: OpenAiEndpoint, library: str) -> None:
    script = Path(__file__).parent / f"openai_clients/with_{library}.py"
    command = [str(environments.python(LOCK)), str(script), f"{with_tools.url}/v1", NAME, PROMPT, "24"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, env=environment, check=True)
    got = json.loads(done.stdout)
    ours = complete(client)
    assert got["texts"] == 3 * [ours.choices[0].text]
    assert got["usage"] == 2 * [[7, 24, 31]]
    # How many were accepted depends on the load, as rounds whose drafts are late go without them.
    assert got["details"]["accepted_prediction_tokens"] > 0
    assert got["details"]["rejected_prediction_tokens"] >= 0
    assert got["calls"] == 2 * [["Add", CALL]]
    assert got["answer"] == complete(client, prompt=PROMPT + "43").choices[0].text
    refused, too_long = CLIENTS[library]
    assert got["refused"][0] == refused and "response_format is not supported" in got["refused"][1]
    assert got["too long"][0] == too_long and "shorten the prompt" in got["too long"][1]
