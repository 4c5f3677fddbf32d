"""Thoughts: no call and no stop word in them counts, in both modes."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from support.serving.openai import FakeTriton, lifespan, listening, tokenizer_folder
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.thinking import Markers, ThoughtReader
from tandem_serving.openai.tool_calls import FORMATS
from tandem_serving.openai.triton import Chunk

THINK = Markers("<think>", "</think>")
TEXTS: list[tuple[str, bool, str, str, str]] = [
    # what the model writes, whether the prompt opened a thought, the thought, the answer, why
    ("<think>a</think>b", False, "<think>a</think>", "b", "the model begins it"),
    ("\n<think>\na\n</think>\n\nb", False, "\n<think>\na\n</think>", "\n\nb", "white space is the answer's"),
    ("a</think>b", True, "a</think>", "b", "the template begins it"),
    ("a</think>\n<think>b</think>c", True, "a</think>\n<think>b</think>", "c", "another one follows"),
    ("a", False, "", "a", "no thought"),
    ("a<think>b</think>", False, "", "a<think>b</think>", "in the answer a marker is text"),
    ("<thin", False, "", "<thin", "the text ends like a marker"),
    ("a</think", True, "a</think", "", "a thought without an end"),
    (" ", False, "", " ", "white space only"),
    ("", True, "", "", "nothing"),
    ("<think></think>", False, "<think></think>", "", "an empty thought"),
    ("<<think>a", False, "", "<<think>a", "no marker after all"),
]


@pytest.mark.parametrize(("text", "inside", "thought", "answer", "why"), TEXTS, ids=[row[-1] for row in TEXTS])
def test_thought_and_answer_in_whatever_pieces_they_come(
    text: str, inside: bool, thought: str, answer: str, why: str
) -> None:
    for size in range(1, len(text) + 2):
        reader = ThoughtReader(THINK, inside)
        parts = [reader.push(text[at : at + size], over=False) for at in range(0, len(text), size)]
        parts.append(reader.push("", over=True))
        assert ("".join(each for each, _ in parts), "".join(each for _, each in parts)) == (thought, answer), why


PROMPTS = [
    ("[assistant]<think>\n", True, "DeepSeek-R1's template"),
    ("[assistant]\n", False, "Qwen 3's: the model decides"),
    ("[assistant]<think>\n\n</think>\n\n", False, "Qwen 3's without thinking"),
    ("what does <think> mean?[assistant]", False, "a user's word"),
]


@pytest.mark.parametrize(("prompt", "inside", "why"), PROMPTS, ids=[row[-1] for row in PROMPTS])
def test_the_prompt_s_end_says_whether_a_thought_has_begun(
    tmp_path: Path, prompt: str, inside: bool, why: str
) -> None:
    model = ChatModel(tokenizer_folder(tmp_path))
    ids = model._tokenizer.encode("x " * 500 + prompt, special=False)
    assert model.thinks_after(ids, THINK) is inside, why


TEMPLATE = "{{ tools | length if tools }}{{ messages[-1].content }}{{ '<think>' if opened }}"
CONSIDERED = 'I could <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>, STOP. '
CALL = '<tool_call>{"name": "f", "arguments": {"a": 2}}</tool_call>'
TOOL: Any = {"type": "function", "function": {"name": "f"}}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stop": "STOP"}
OPENED: dict[str, Any] = {"extra_body": {"chat_template_kwargs": {"opened": True}}}


class Endless(FakeTriton):
    """Writes a text, a character a chunk, and goes on; it has no stop words."""

    def __init__(self, text: str, mode: str) -> None:
        super().__init__(mode=mode)
        self.text = text

    async def generate(self, requests: Any, outputs: Sequence[str]) -> Any:
        """The chunks of all requests in turn."""
        self.calls.append((requests, outputs))
        try:
            for character in itertools.chain(self.text, itertools.repeat("~", 100)):
                await asyncio.sleep(0)
                for choice in range(len(requests)):
                    yield choice, Chunk(character, [1], [], "", {})
            raise AssertionError("it was not ended")
        finally:
            self.ended += 1


@contextlib.contextmanager
def client(triton: FakeTriton, folder: Path, thinking: Markers | None = THINK) -> Iterator[openai.OpenAI]:
    keys, form = ApiKeys(None), FORMATS["Hermes"]
    endpoint = Endpoint("m", triton, ChatModel(folder), keys, 10000, Metrics(0), form, thinking)
    with (
        listening(application(endpoint, lifespan)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


BEGUN: list[tuple[str, dict[str, Any]]] = [("<think>", {}), ("", OPENED)]


@pytest.mark.parametrize("mode", ["BLS", "LLMAPI"])
@pytest.mark.parametrize(("begin", "more"), BEGUN, ids=["the model begins", "the template begins"])
@pytest.mark.parametrize("stream", [False, True])
def test_no_call_and_no_stop_word_in_a_thought_counts(
    tmp_path: Path, mode: str, begin: str, more: dict[str, Any], stream: bool
) -> None:
    thought = f"{begin}{CONSIDERED}</think>"
    triton = Endless(f"{thought}\n{CALL}STOP{CALL}", mode)
    asked = {**ASK, "tools": [TOOL], **more}
    with client(triton, tokenizer_folder(tmp_path, TEMPLATE)) as openai_client:
        if stream:
            with openai_client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                answer: Any = events.get_final_completion()
        else:
            answer = openai_client.chat.completions.create(**asked)
    [choice] = answer.choices
    assert choice.message.content.strip() == thought.strip()
    assert [call.function.arguments for call in choice.message.tool_calls] == ['{"a": 2}']
    assert choice.finish_reason == "tool_calls"
    assert triton.ended == 1, "the engine's request is cancelled"
    length = len(f"{thought}\n{CALL}STOP")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt_tokens(triton), length)
    [([tensors], outputs)] = triton.calls
    assert not [name for name in tensors if "stop" in name], "the engine does not know the word"
    assert tensors[triton.model.inputs["stream"]].item() is True, "so that it can be stopped"
    assert "output_ids" in outputs


def prompt_tokens(triton: FakeTriton) -> int:
    [([tensors], _)] = triton.calls
    return int(tensors["input_ids"].size)


def test_each_choice_ends_at_its_own_stop_word(tmp_path: Path) -> None:
    triton = Endless("<think>STOP</think>aSTOP", "BLS")
    with client(triton, tokenizer_folder(tmp_path, TEMPLATE)) as openai_client:
        choices = openai_client.chat.completions.create(**ASK, n=3).choices
    assert [(choice.message.content, choice.finish_reason) for choice in choices] == 3 * [
        ("<think>STOP</think>a", "stop")
    ]
    assert triton.ended == 1


def test_without_the_setting_the_engine_has_the_stop_words(tmp_path: Path) -> None:
    for thinking, more in ((None, ASK), (THINK, {**ASK, "stop": None})):
        triton = FakeTriton((0, Chunk("<think>a", [], [], "length", {})))
        with client(triton, tokenizer_folder(tmp_path, TEMPLATE), thinking) as openai_client:
            openai_client.chat.completions.create(**more)
        [([tensors], outputs)] = triton.calls
        assert ("stop_words" in tensors) is bool(more["stop"])
        assert tensors["stream"].item() is False
        assert "output_ids" not in outputs


def test_what_is_guided_is_no_thought(tmp_path: Path) -> None:
    """The template may open a thought, but the guide lets none through."""
    triton = FakeTriton((0, Chunk('{"a": 1}', [], [], "end_id", {})), mode="LLMAPI")
    choice: Any = {"type": "function", "function": {"name": "f"}}
    with client(triton, tokenizer_folder(tmp_path, TEMPLATE)) as openai_client:
        answer = openai_client.chat.completions.create(**ASK, tools=[TOOL], tool_choice=choice, **OPENED).choices[0]
    assert answer.message.tool_calls
    [([tensors], _)] = triton.calls
    assert "sampling_param_stop" in tensors


def test_a_marker_that_texts_cannot_have_is_named(tmp_path: Path) -> None:
    markers = Markers("<think>", "<|endoftext|>")  # a special token of the pair
    with (
        client(Endless("x", "BLS"), tokenizer_folder(tmp_path, TEMPLATE), markers) as openai_client,
        pytest.raises(openai.BadRequestError, match=r"thinking.end: '<\|endoftext\|>' is a special token"),
    ):
        openai_client.chat.completions.create(**ASK)
