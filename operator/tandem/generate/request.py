"""A request to `speculative_bls`: what is asked for, as Triton inputs. Pure.

Tensor names, dtypes and shapes ([1, 1], strings as UTF-8) are those of TensorRT-LLM's `tensorrt_llm_bls`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput

MODEL = "speculative_bls"


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when to stop; None leaves it to the service."""

    max_tokens: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_words: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether each token is the likeliest one, so that the output cannot depend on speculation."""
        asked = (self.temperature, self.top_k, self.top_p)
        return all(value is None for value in asked) or self.temperature == 0 or self.top_k == 1


@dataclass(frozen=True)
class Request:
    """A prompt to complete with at most `num_draft_tokens` draft tokens a pass: 0 for the target alone,
    None for the service's own number."""

    prompt: str
    sampling: Sampling
    num_draft_tokens: int | None = None


_DTYPES: dict[str, tuple[str, type[np.generic]]] = {
    "text_input": ("BYTES", np.object_),
    "max_tokens": ("INT32", np.int32),
    "num_draft_tokens": ("INT32", np.int32),
    "temperature": ("FP32", np.float32),
    "top_k": ("INT32", np.int32),
    "top_p": ("FP32", np.float32),
    "seed": ("UINT64", np.uint64),
    "stop_words": ("BYTES", np.object_),
    "stream": ("BOOL", np.bool_),
    "exclude_input_in_output": ("BOOL", np.bool_),
}


def infer_inputs(request: Request) -> list[Any]:
    """The `InferInput`s of a streaming request."""
    sampling = request.sampling
    values = {
        "text_input": request.prompt.encode(),
        "max_tokens": sampling.max_tokens,
        "num_draft_tokens": request.num_draft_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop_words": [word.encode() for word in sampling.stop_words] or None,
        "stream": True,
        "exclude_input_in_output": True,
    }
    return [_input(name, value) for name, value in values.items() if value is not None]


def _input(name: str, value: Any) -> Any:
    datatype, dtype = _DTYPES[name]
    array = np.array(value, dtype).reshape(1, -1)
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor
