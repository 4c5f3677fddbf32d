"""The parameters of requests by which engines sample: one table for the models of both modes, the OpenAI endpoint and
the operator's clients.

It imports nothing of ours: the operator has a copy, operator/tandem/api/sampling_parameters.py, which `make generate`
makes of the file in images/serving/tandem_serving/requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BLS, LLMAPI = "BLS", "LLMAPI"
PREFIX = "sampling_param_"
"""Of upstream's inputs in mode LLMAPI."""


@dataclass(frozen=True)
class SamplingParameter:
    """A parameter, by OpenAI's and vLLM's name; `datatype` is Triton's.

    `modes`: whose models have an input for it. `inputs`: its names where they are not the usual ones, of what a model
    reads by itself; all others go to the engine as they come. `engine`: the tensor of TensorRT-LLM's engines in mode
    BLS, and `default` what they take where it is not sent (layers/defaultDecodingParams.h). `least` to `most`: its
    range, without `least` where it lies `above`; `must` says so where the numbers do not. `neutral`: values that ask
    for nothing. `openai`: whether the OpenAI endpoint takes it.
    """

    name: str
    datatype: str
    modes: tuple[str, ...] = (BLS, LLMAPI)
    inputs: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    default: float | None = None
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    must: str = ""
    neutral: tuple[Any, ...] = ()
    openai: bool = True

    def input(self, mode: str) -> str:
        """Its input in one of its modes."""
        return self.inputs.get(mode) or (f"{PREFIX}{self.name}" if mode == LLMAPI else self.name)

    def fault(self, value: float) -> str:
        """What a number must be that this one is not; "": it is well."""
        if math.isfinite(value) and self.least <= value <= self.most and not (self.above and value == self.least):
            return ""
        if self.must or not math.isfinite(self.least):
            return self.must or "be finite"
        if math.isfinite(self.most):
            return f"lie between {self.least:g} and {self.most:g}"
        return f"be above {self.least:g}" if self.above else f"be {self.least:g} or more"


PARAMETERS = (
    SamplingParameter("temperature", "FP32", engine="temperature", default=1, least=0),
    SamplingParameter("top_k", "INT32", engine="runtime_top_k", default=0, least=0, must="be 0 (all) or more"),
    SamplingParameter("top_p", "FP32", engine="runtime_top_p", default=0, least=0, most=1),
    SamplingParameter("min_p", "FP32", (LLMAPI,), least=0, most=1, neutral=(0,)),
    SamplingParameter("seed", "UINT64"),
    SamplingParameter(
        "repetition_penalty",
        "FP32",
        engine="repetition_penalty",
        default=1,
        least=0,
        above=True,
        neutral=(1,),
    ),
    SamplingParameter("presence_penalty", "FP32", engine="presence_penalty", default=0, neutral=(0,)),
    SamplingParameter("frequency_penalty", "FP32", engine="frequency_penalty", default=0, neutral=(0,)),
    SamplingParameter("min_tokens", "INT32", least=0, neutral=(0,)),
    SamplingParameter(
        "bad_words",
        "BYTES",
        inputs={BLS: "bad_words", LLMAPI: f"{PREFIX}bad"},
        neutral=([],),
        openai=False,
    ),
    SamplingParameter(
        "embedding_bias", "BYTES", (BLS,), inputs={BLS: "embedding_bias_words"}, neutral=([],), openai=False
    ),
    SamplingParameter("ignore_eos", "BOOL", (LLMAPI,)),
    SamplingParameter("best_of", "INT32", (LLMAPI,), least=1, neutral=(1,), openai=False),
    SamplingParameter(
        "logprobs",
        "BOOL",
        inputs={BLS: "return_log_probs", LLMAPI: "return_cumulative_logprob"},
        neutral=(False,),
        openai=False,
    ),
    SamplingParameter(
        "length_penalty", "FP32", (BLS,), engine="len_penalty", default=0, least=0, neutral=(0, 1), openai=False
    ),
)


def of_mode(mode: str) -> tuple[SamplingParameter, ...]:
    """Those that a mode's models have an input for."""
    return tuple(parameter for parameter in PARAMETERS if mode in parameter.modes)


def passed_on(mode: str) -> tuple[SamplingParameter, ...]:
    """Those of them that go to the engine as they come: a value for each sequence."""
    return tuple(parameter for parameter in of_mode(mode) if not parameter.inputs)
