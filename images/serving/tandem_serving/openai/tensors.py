"""From a request of OpenAI's API to the tensors of the mode's Triton model. Pure, but for seeds that nobody gave."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tandem_serving.openai.api import ChatRequest, CompletionRequest, Parameters, ResponseFormat
from tandem_serving.openai.errors import ApiError, unsupported
from tandem_serving.openai.triton import TYPES, TritonModel
from tandem_serving.requests.tensors import TO_THE_LIMIT, Array

Prompts = Sequence[str] | Sequence[Sequence[int]]
SEEDS = 1 << 64
OPTIONAL = ("top_k", "min_p", "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty")


def tensors(
    model: TritonModel,
    request: ChatRequest | CompletionRequest,
    prompts: Prompts,
    random: Callable[[int], int] = secrets.randbelow,
) -> dict[str, Array]:
    """A row for each choice, those of one prompt together; `n` of them are n sequences with seeds of their own.

    Texts are object[rows], tokens int32[rows, longest] with their lengths; in mode BLS each has one dimension more.
    Raises ApiError: the mode has no such parameter.
    """
    rows = [prompt for prompt in prompts for _ in range(request.n)]
    values = {
        "stream": request.stream,
        "exclude_input": True,
        "max_tokens": request.most_tokens or TO_THE_LIMIT,
        **_sampling(request, len(prompts), random),
        **({"log_probs": True} if request.with_log_probs else {}),
    }
    if "ignore_eos" in values and "end_id" in model.inputs:  # mode BLS: no token ends a text
        del values["ignore_eos"]
        values["end_id"] = -1
    found = {_name(model, name): np.broadcast_to(np.array(value, TYPES[name]), len(rows)) for name, value in values.items()}
    guide = {name: _texts([text] * len(rows)) for name, text in _guide(request.response_format).items()}
    columns = {**_prompts(rows), **found, **guide}
    made = {name: value.reshape(len(rows), -1) if model.batched else value for name, value in columns.items()}
    if request.stops:
        words = _texts(request.stops)
        made[_name(model, "stop")] = np.tile(words, (len(rows), 1)) if model.batched else words
    return made


def parameter(model: TritonModel, message: str) -> str | None:
    """The parameter that an error of the model is about: its messages begin with the input's name."""
    first = message.partition(" ")[0].rstrip(":")
    names = {theirs: ours for ours, theirs in model.inputs.items()}
    return "response_format" if first.startswith("guided_decoding") else names.get(first)


def _prompts(rows: Prompts) -> dict[str, Array]:
    if isinstance(rows[0], str):
        return {"text_input": _texts([str(row) for row in rows])}
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max(lengths)), np.int32)
    for filled, row, length in zip(ids, rows, lengths, strict=True):
        filled[:length] = _ids(row)
    return {"input_ids": ids, "input_lengths": np.array(lengths, np.int32)}


def _ids(row: Any) -> Array:
    try:
        return np.array(row, np.int32)
    except OverflowError:
        raise ApiError(400, "prompt has a token beyond the vocabulary: send tokens of this model", "prompt") from None


def _sampling(request: Parameters, prompts: int, random: Callable[[int], int]) -> dict[str, Any]:
    """OpenAI samples from the whole distribution unless told otherwise; an engine without a seed would always draw
    the same."""
    given = {name: value for name in OPTIONAL if (value := getattr(request, name)) is not None}
    if request.num_draft_tokens is not None:
        given["num_draft_tokens"] = request.num_draft_tokens
    if request.ignore_eos:
        given["ignore_eos"] = True
    if given.get("top_k") == 0:  # vLLM's: all tokens
        del given["top_k"]
    temperature = 1.0 if request.temperature is None else request.temperature
    if temperature == 0:
        return {**given, "temperature": 0.0}
    seed = random(SEEDS) if request.seed is None else request.seed
    seeds = [(seed + choice) % SEEDS for choice in range(request.n)] * prompts
    return {**given, "temperature": temperature, "top_p": request.top_p or 1.0, "seed": seeds}


def _guide(wanted: ResponseFormat | None) -> dict[str, str]:
    if wanted is None or wanted.type == "text":
        return {}
    if wanted.type == "json_object":
        return {"guided_decoding_guide_type": "json"}
    if wanted.json_schema is None:
        raise ApiError(400, "response_format.json_schema is missing: send the schema in it", "response_format")
    schema = json.dumps(wanted.json_schema.json_schema, ensure_ascii=False)
    return {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": schema}


def _name(model: TritonModel, parameter: str) -> str:
    if parameter not in model.inputs:
        name = "logprobs" if parameter == "log_probs" else parameter
        raise unsupported(name, "this service's engine has no such parameter; leave it out")
    return model.inputs[parameter]


def _texts(texts: Sequence[str]) -> Array:
    return np.array([text.encode(errors="replace") for text in texts], np.object_)
