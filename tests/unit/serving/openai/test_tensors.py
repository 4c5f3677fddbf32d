"""From parameters of OpenAI's API to the tensors of both modes."""

from typing import Any

import numpy as np
import pytest

from tandem_serving.openai.api import ChatRequest, CompletionRequest
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.tensors import explained, tensors
from tandem_serving.openai.triton import MODELS
from tandem_serving.requests.refused import RefusedParameters

BLS, LLMAPI = MODELS["BLS"], MODELS["LLMAPI"]
GREEDY = {"temperature": 0}
SCHEMA = {"type": "object"}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
ROWS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    # parameters, tensors of mode BLS, of mode LLMAPI, why
    (
        {},
        {"temperature": 1, "top_p": 1, "seed": 42},
        {"sampling_param_temperature": 1, "sampling_param_top_p": 1, "sampling_param_seed": 42},
        "OpenAI samples from the whole distribution; an engine without a seed draws the same each time",
    ),
    (GREEDY, {"temperature": 0}, {"sampling_param_temperature": 0}, "nothing is drawn"),
    (
        {"temperature": 0.5, "top_p": 0.9, "seed": -1, "top_k": 7},
        {"temperature": 0.5, "top_p": np.float32(0.9), "seed": (1 << 64) - 1, "top_k": 7},
        {
            "sampling_param_temperature": 0.5,
            "sampling_param_top_p": np.float32(0.9),
            "sampling_param_seed": (1 << 64) - 1,
            "sampling_param_top_k": 7,
        },
        "a seed is unsigned",
    ),
    ({**GREEDY, "top_k": 0}, {"temperature": 0}, {"sampling_param_temperature": 0}, "all tokens, as vLLM has it"),
    (
        {**GREEDY, "ignore_eos": True, "min_tokens": 3},
        {"temperature": 0, "end_id": -1, "min_tokens": 3},
        {"sampling_param_temperature": 0, "sampling_param_ignore_eos": True, "sampling_param_min_tokens": 3},
        "no token ends the text",
    ),
    (
        {**GREEDY, "response_format": FORMAT},
        {
            "temperature": 0,
            "guided_decoding_guide_type": b"json_schema",
            "guided_decoding_guide": b'{"type": "object"}',
        },
        {
            "sampling_param_temperature": 0,
            "guided_decoding_guide_type": b"json_schema",
            "guided_decoding_guide": b'{"type": "object"}',
        },
        "a schema is a guide",
    ),
    (
        {**GREEDY, "response_format": {"type": "json_object"}, "presence_penalty": -1, "repetition_penalty": 2},
        {
            "temperature": 0,
            "guided_decoding_guide_type": b"json",
            "presence_penalty": -1,
            "repetition_penalty": 2,
        },
        {
            "sampling_param_temperature": 0,
            "guided_decoding_guide_type": b"json",
            "sampling_param_presence_penalty": -1,
            "sampling_param_repetition_penalty": 2,
        },
        "any JSON",
    ),
    (
        {**GREEDY, "response_format": {"type": "json_object", "schema": SCHEMA}},
        {
            "temperature": 0,
            "guided_decoding_guide_type": b"json_schema",
            "guided_decoding_guide": b'{"type": "object"}',
        },
        {
            "sampling_param_temperature": 0,
            "guided_decoding_guide_type": b"json_schema",
            "guided_decoding_guide": b'{"type": "object"}',
        },
        "a schema that other servers take beside json_object",
    ),
]
ALWAYS = {
    BLS.name: {"text_input": b"x", "stream": False, "exclude_input_in_output": True, "max_tokens": 16},
    LLMAPI.name: {
        "text_input": b"x",
        "streaming": False,
        "sampling_param_exclude_input_from_output": True,
        "sampling_param_max_tokens": 16,
    },
}


def request(**more: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "x", **more})


def values(made: dict[str, Any]) -> dict[str, Any]:
    return {name: value.item() for name, value in made.items()}


@pytest.mark.parametrize(("sent", "bls", "llmapi", "reason"), ROWS, ids=[row[-1] for row in ROWS])
def test_parameters_become_tensors(
    sent: dict[str, Any], bls: dict[str, Any], llmapi: dict[str, Any], reason: str
) -> None:
    for model, wanted in ((BLS, bls), (LLMAPI, llmapi)):
        [made] = tensors(model, request(**sent), ["x"], lambda _: 42)
        assert values(made) == {**ALWAYS[model.name], **wanted}, reason
        assert {value.shape for value in made.values()} == {(1, 1) if model is BLS else (1,)}


def test_types_are_those_of_the_models_configurations() -> None:
    [made] = tensors(LLMAPI, request(top_k=1, top_p=0.5, ignore_eos=True), ["x"])
    kinds = {name.removeprefix("sampling_param_"): value.dtype.name for name, value in made.items()}
    assert kinds == {
        "text_input": "object",
        "streaming": "bool",
        "exclude_input_from_output": "bool",
        "max_tokens": "int32",
        "temperature": "float32",
        "top_p": "float32",
        "top_k": "int32",
        "seed": "uint64",
        "ignore_eos": "bool",
    }


def test_log_probs_of_the_prompt_come_with_its_echo() -> None:
    [made] = tensors(LLMAPI, request(logprobs=0, echo=True), ["x"])
    assert made["return_log_probs"].item() is made["return_prompt_log_probs"].item() is True
    assert "return_prompt_log_probs" not in tensors(LLMAPI, request(logprobs=0), ["x"])[0]


def test_each_choice_is_a_request_with_a_seed_of_its_own() -> None:
    made = tensors(BLS, request(n=2, seed=7), ["a", "b"])
    assert [(each["text_input"].item(), each["seed"].item()) for each in made] == [
        (b"a", 7),
        (b"a", 8),
        (b"b", 7),
        (b"b", 8),
    ]


def test_tokens_and_stop_words_have_the_models_shapes() -> None:
    for model, one, words in ((BLS, (1, 1), (1, 2)), (LLMAPI, (1,), (2,))):
        [made] = tensors(model, request(stop=["a", "", "b"]), [[5, 6, 7]])
        assert (made["input_ids"].tolist(), made["input_lengths"].shape) == ([[5, 6, 7]], one)
        stop = made[model.inputs["stop"]]
        assert (stop.shape, stop.reshape(-1).tolist()) == (words, [b"a", b"b"])


def test_chat_without_a_number_of_tokens_goes_to_the_models_limit() -> None:
    chat = ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    assert tensors(BLS, chat, [[1]])[0]["max_tokens"].item() == -1


@pytest.mark.parametrize(
    ("model", "sent", "name"),
    [
        (BLS, {"min_p": 0.1}, "min_p"),
        (BLS, {"logprobs": 0, "echo": True}, "echo"),
        (LLMAPI, {"num_draft_tokens": 0}, "num"),
    ],
)
def test_what_the_mode_cannot_is_refused_by_its_name(model: Any, sent: dict[str, Any], name: str) -> None:
    with pytest.raises(ApiError) as refused:
        tensors(model, request(**sent), ["x"])
    assert (refused.value.param or "").startswith(name)


NO_SEEDS = RefusedParameters({"seed": "the engine draws all from one generator; leave it out"})
NO_DRAWS = RefusedParameters({"temperature": "the engine draws nothing; send temperature 0", "top_p": "likewise"})


@pytest.mark.parametrize(
    ("refused", "sent", "name", "reason"),
    [
        (NO_SEEDS, {"seed": 7}, "seed", "it would repeat nothing"),
        (NO_DRAWS, {}, "temperature", "OpenAI samples where no temperature is sent"),
    ],
)
def test_what_the_engine_would_drop_is_refused_by_its_name(
    refused: RefusedParameters, sent: dict[str, Any], name: str, reason: str
) -> None:
    with pytest.raises(ApiError) as error:
        tensors(LLMAPI, request(**sent), ["x"], refused=refused)
    assert (error.value.status, error.value.param, error.value.code) == (400, name, "unsupported_parameter"), reason
    assert str(error.value) == f"{name} is not supported: {refused.why[name]}"


def test_an_engine_that_drops_seeds_gets_none() -> None:
    """Without one of the client's each choice has one that is drawn: the model would refuse it."""
    sent = tensors(LLMAPI, request(n=2), ["x"], refused=NO_SEEDS)
    assert [set(each) & {"sampling_param_seed"} for each in sent] == [set(), set()]
    assert "sampling_param_temperature" in sent[0]


def test_seeds_and_limits_of_greedy_requests_pass() -> None:
    [made] = tensors(LLMAPI, request(temperature=0, seed=7, top_p=0.5), ["x"], refused=NO_SEEDS)
    assert "sampling_param_seed" not in made
    assert tensors(LLMAPI, request(temperature=0, top_p=0.5), ["x"], refused=NO_DRAWS)


@pytest.mark.parametrize(
    ("model", "message", "name"),
    [
        (BLS, "top_k is -1: it must be 0 or more", "top_k"),
        (LLMAPI, "sampling_param_top_k is -1: it must be 0 or more", "top_k"),
        (BLS, "target engine: guided_decoding_guide_type is not supported: leave it out", "response_format"),
        (BLS, "the prompt's 9 tokens and max_tokens 5 make 14", None),
        (LLMAPI, "the prompt's 9 tokens and sampling_param_max_tokens 5 make 14", None),
        (BLS, "", None),
    ],
)
def test_an_error_of_the_model_is_about_the_parameter_that_it_begins_with(
    model: Any, message: str, name: str | None
) -> None:
    error = explained(model, ApiError(500, message))
    assert (error.param, error.status) == (name, 400 if name else 500)
    assert "sampling_param_" not in str(error)
    assert not name or str(error).removeprefix("target engine: ").startswith(f"{name} is ")


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("the prompt's 9 tokens and max_tokens 5 make 14, more than the model's limit of 12", "with max_tokens the "),
        ("input_ids holds 14 tokens, the model's limit is 12: shorten the prompt", "the "),
        ("the prompt's 900 characters are more than the model's limit of 12 tokens can hold: shorten it", "the "),
    ],
)
def test_clients_know_a_text_that_is_too_long_by_code_and_words(message: str, what: str) -> None:
    error = explained(BLS, ApiError(400, message))
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert str(error) == f"{what}prompt is too long, this model's maximum context length is 12 tokens: {message}"
