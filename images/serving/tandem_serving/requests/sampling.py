"""The numbers by which tokens are sampled: upstream's inputs, and what TensorRT-LLM makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SamplingField:
    """A number that goes to the engines: its tensor there, its dtype, what it must satisfy, and what engines take
    where it is not sent (TensorRT-LLM, layers/defaultDecodingParams.h); None: that follows from other fields."""

    tensor: str
    dtype: type[np.generic]
    default: float | None = None
    valid: Callable[[float], bool] = math.isfinite
    must: str = "be finite"


SAMPLING = {
    "top_k": SamplingField("runtime_top_k", np.int32, 0, lambda v: v >= 0, "be 0 (all) or more"),
    "top_p": SamplingField("runtime_top_p", np.float32, 0, lambda v: 0 <= v <= 1, "lie between 0 and 1"),
    "temperature": SamplingField("temperature", np.float32, 1, lambda v: 0 <= v < math.inf, "be 0 or more"),
    "length_penalty": SamplingField("len_penalty", np.float32, 0, lambda v: 0 <= v < math.inf, "be 0 or more"),
    "repetition_penalty": SamplingField(
        "repetition_penalty", np.float32, 1, lambda v: 0 < v < math.inf, "be above 0"
    ),
    "presence_penalty": SamplingField("presence_penalty", np.float32, 0),
    "frequency_penalty": SamplingField("frequency_penalty", np.float32, 0),
    "pad_id": SamplingField("pad_id", np.int32),
}
