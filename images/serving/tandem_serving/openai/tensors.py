"""From a request of OpenAI's API to the tensors of the mode's Triton model. Pure, but for seeds that are not sent."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tandem_serving.openai.api import ChatRequest, CompletionRequest, Parameters, ResponseFormat
from tandem_serving.openai.errors import ApiError, unsupported
from tandem_serving.openai.triton import TOO_LONG, TYPES, TritonModel
from tandem_serving.requests.refused import RefusedParameters
from tandem_serving.requests.sampling_parameters import PARAMETERS
from tandem_serving.requests.tensors import TO_THE_LIMIT, Array

Prompts = Sequence[str] | Sequence[Sequence[int]]
SEEDS = 1 << 64
NONE_REFUSED = RefusedParameters()
DECIDED = ("temperature", "top_p", "seed")
"""Parameters that go to the model in every request that draws."""
OPTIONAL = (
    *(each.name for each in PARAMETERS if each.openai and each.name not in DECIDED),
    "num_draft_tokens",
)


def tensors(
    model: TritonModel,
    request: ChatRequest | CompletionRequest,
    prompts: Prompts,
    random: Callable[[int], int] = secrets.randbelow,
    refused: RefusedParameters = NONE_REFUSED,
) -> list[dict[str, Array]]:
    """The requests to Triton, one for each choice: `n` of a prompt are n sequences with seeds of their own.

    Tokens are int32[1, m]; all else has a value [1], or several stop words [k], behind a batch dimension of 1 in mode
    BLS. Raises ApiError: the mode has no such parameter, or the engine would drop it.
    """
    sampling = _sampling(request)
    greedy = sampling["temperature"] == 0 or sampling.get("top_k") == 1
    if name := refused.first({**sampling, "seed": request.seed, "logprobs": request.with_log_probs}, greedy):
        raise unsupported(name, refused.why[name])
    seed = random(SEEDS) if request.seed is None and "seed" not in refused.why else request.seed
    shared = _shared(model, request)
    return [
        {**shared, **tensor, **_seed(model, request, seed, choice)}
        for tensor in (_prompt(model, prompt) for prompt in prompts)  # one for all choices: it may be large
        for choice in range(request.n)
    ]


def _shared(model: TritonModel, request: ChatRequest | CompletionRequest) -> dict[str, Array]:
    values = {
        "stream": request.stream,
        "exclude_input": True,
        "max_tokens": request.most_tokens or TO_THE_LIMIT,
        **_sampling(request),
        **({"logprobs": True} if request.with_log_probs else {}),
        **({"echo": True} if request.with_prompt_log_probs else {}),
    }
    if values.pop("ignore_eos", False):
        values |= {"end_id": -1} if "end_id" in model.inputs else {"ignore_eos": True}
    made = {_name(model, name): _one(model, value, TYPES[name]) for name, value in values.items()}
    if request.stops:
        made[_name(model, "stop")] = _texts(model, request.stops)
    guide = _guide(request.response_format)
    return {**made, **{name: _texts(model, [text]) for name, text in guide.items()}}


def explained(model: TritonModel, error: ApiError, guided_by: str = "response_format") -> ApiError:
    """An error of the model in the words of this API: where its message begins with an input's name, it is about that
    parameter; about guided decoding, about `guided_by`.

    Clients know a text that is too long by OpenAI's code, or by words: LangChain by "prompt is too long", LiteLLM by
    "this model's maximum context length is".
    """
    first = str(error).removeprefix("target engine: ").partition(" ")[0].rstrip(":")
    names = {theirs: ours for ours, theirs in model.inputs.items()}
    name = guided_by if first.startswith("guided_decoding") else names.get(first)
    message = str(error).replace(first, name or first, 1).replace("sampling_param_", "")
    if name:
        return ApiError(400, message, name, "invalid_value")
    if limit := TOO_LONG.search(message):
        what = "with max_tokens the prompt" if "max_tokens" in message else "the prompt"
        message = f"{what} is too long, this model's maximum context length is {limit[1]} tokens: {message}"
        return ApiError(error.status, message, error.param, "context_length_exceeded")
    return ApiError(error.status, message, error.param, error.code)


def _prompt(model: TritonModel, prompt: str | Sequence[int]) -> dict[str, Array]:
    if isinstance(prompt, str):
        return {"text_input": _texts(model, [prompt])}
    lengths = _one(model, len(prompt), np.int32)
    return {"input_ids": np.array([prompt], np.int32), "input_lengths": lengths}


def _sampling(request: Parameters) -> dict[str, Any]:
    """OpenAI samples from the whole distribution unless it is asked otherwise."""
    given = {name: value for name in OPTIONAL if (value := getattr(request, name)) is not None}
    if given.get("top_k") == 0:  # vLLM's: all tokens
        del given["top_k"]
    if request.temperature == 0:
        return {**given, "temperature": 0.0}
    temperature = 1.0 if request.temperature is None else request.temperature
    return {**given, "temperature": temperature, "top_p": request.top_p or 1.0}


def _seed(model: TritonModel, request: Parameters, seed: int | None, choice: int) -> dict[str, Array]:
    """An engine that follows seeds, and gets none, would always draw the same."""
    if request.temperature == 0 or seed is None:
        return {}
    return {_name(model, "seed"): _one(model, (seed + choice) % SEEDS, np.uint64)}


def _guide(wanted: ResponseFormat | None) -> dict[str, str]:
    if wanted is None:
        return {}
    found = wanted.schema_of_text
    if wanted.type == "text":
        return {}
    if found is None:
        return {"guided_decoding_guide_type": "json"}
    schema = json.dumps(found, ensure_ascii=False)
    return {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": schema}


def _name(model: TritonModel, parameter: str) -> str:
    if parameter not in model.inputs:
        if parameter == "echo":
            raise unsupported("echo", "mode BLS has no log probabilities of a prompt; leave echo or logprobs out")
        raise unsupported(parameter, "this service's engine has no such parameter; leave it out")
    return model.inputs[parameter]


def _one(model: TritonModel, value: Any, kind: type[np.generic]) -> Array:
    return np.full((1, 1) if model.batched else 1, value, kind)


def _texts(model: TritonModel, texts: Sequence[str]) -> Array:
    array = np.array([text.encode(errors="replace") for text in texts], np.object_)
    return array.reshape(1, -1) if model.batched else array
