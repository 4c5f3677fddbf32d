"""Requests as TensorRT-LLM's SamplingParams."""

from typing import Any

import pytest

from tandem_serving.llmapi.engines.tensorrt_llm import sampling
from tandem_serving.llmapi.request import GUIDES, Guide, LlmApiPrompt, LlmApiRequest


def prompt(**changes: Any) -> LlmApiPrompt:
    return LlmApiPrompt(0, "a", [97], {"max_tokens": 4, **changes.pop("sampling", {})}, **changes)


@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        ({"temperature": 0.5, "top_k": 7}, {"temperature": 0.5, "top_k": 7}),
        ({"temperature": 0, "top_p": 0.9}, {"top_k": 1, "top_p": 0.9}),
        ({"seed": 3, "bad": ["x"]}, {"seed": 3, "bad": ["x"]}),
    ],
)
def test_greedy_is_the_likeliest_of_one(sent: dict[str, Any], fields: dict[str, Any]) -> None:
    assert sampling.fields(prompt(sampling=sent)) == {"max_tokens": 4, **fields}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("json", {"json_object": True}),
        ("json_schema", {"json": "x"}),
        ("regex", {"regex": "x"}),
        ("ebnf_grammar", {"grammar": "x"}),
        ("structural_tag", {"structural_tag": "x"}),
    ],
)
def test_guides(kind: str, fields: dict[str, Any]) -> None:
    assert kind in GUIDES
    made = sampling.params("reference_llm", prompt(guide=Guide(kind, "x")), LlmApiRequest(()))
    assert {name: getattr(made.guided_decoding, name) for name in fields} == fields
    assert sampling.params("reference_llm", prompt(), LlmApiRequest(())).guided_decoding is None


@pytest.mark.parametrize(
    ("best_of", "asked", "log_probs"),
    [(1, {}, None), (1, {"cumulative_logprob": True}, 1), (1, {"log_probs": True}, 1), (2, {}, 1)],
)
def test_the_best_of_several_is_known_by_log_probs(
    best_of: int, asked: dict[str, bool], log_probs: int | None
) -> None:
    several = prompt(sampling={"best_of": best_of, "top_k": 5})
    assert sampling.params("reference_llm", several, LlmApiRequest((), **asked)).logprobs == log_probs
