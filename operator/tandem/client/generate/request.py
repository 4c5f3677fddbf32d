"""A request to a service: what is asked for, as Triton inputs of its mode's model. Pure.

Tensor names, dtypes and shapes (strings as UTF-8) are those of TensorRT-LLM's models `tensorrt_llm_bls`, [1, n], and
`tensorrt_llm` of its LLM API, [n].
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.utils import triton_to_np_dtype

from tandem.api.sampling_parameters import PARAMETERS, PREFIX


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when to stop; None leaves it to the service."""

    max_tokens: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_words: tuple[str, ...] = ()
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    bad_words: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether each token is the likeliest one, so that the output cannot depend on speculation."""
        asked = (self.temperature, self.top_k, self.top_p)
        return all(value is None for value in asked) or self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    @property
    def share(self) -> float | None:
        """`top_p` as it is sent: with neither limit, TensorRT-LLM's engines take the likeliest token at any
        temperature."""
        return self.top_p if self.greedy or self.top_k or self.top_p else 1.0


@dataclass(frozen=True)
class Request:
    """A prompt to complete with at most `num_draft_tokens` draft tokens a pass: 0 for the target alone,
    None for the service's own number. `refused_text`: chunks are to have the text of refused draft tokens."""

    prompt: str
    sampling: Sampling
    num_draft_tokens: int | None = None
    refused_text: bool = False


Tensors = Mapping[str, tuple[str, str]]
"""A field of a request to its tensor's name and Triton's datatype."""


@dataclass(frozen=True)
class ModelApi:
    """The model that streams in a mode (`runtime.mode`), and its tensors.

    `shape`: of a tensor of one request, -1 its values. `keeps_stop_words`: a text that one ends has it. `owns_seeds`:
    whether seeds are Tandem's, and so must repeat; engines draw otherwise.
    """

    mode: str
    model: str
    tensors: Tensors
    shape: tuple[int, ...]
    keeps_stop_words: bool = False
    owns_seeds: bool = False

    @property
    def drafts_by_request(self) -> bool:
        """Whether a request may say how many tokens to draft."""
        return "num_draft_tokens" in self.tensors


_OWN = [parameter for parameter in PARAMETERS if parameter.name in {each.name for each in fields(Sampling)}]


def _sampling(mode: str) -> Tensors:
    return {each.name: (each.input(mode), each.datatype) for each in _OWN if mode in each.modes}


BLS = ModelApi(
    "BLS",
    "speculative_bls",
    {
        **_sampling("BLS"),
        "text": ("text_input", "BYTES"),
        "max_tokens": ("max_tokens", "INT32"),
        "num_draft_tokens": ("num_draft_tokens", "INT32"),
        "stop_words": ("stop_words", "BYTES"),
        "stream": ("stream", "BOOL"),
        "exclude_input": ("exclude_input_in_output", "BOOL"),
        "refused_text": ("return_refused_draft_text", "BOOL"),
    },
    (1, -1),
    keeps_stop_words=True,
    owns_seeds=True,
)
_LLM_API: Tensors = {
    **_sampling("LLMAPI"),
    "text": ("text_input", "BYTES"),
    "max_tokens": (f"{PREFIX}max_tokens", "INT32"),
    "stop_words": (f"{PREFIX}stop", "BYTES"),
    "stream": ("streaming", "BOOL"),
    "exclude_input": (f"{PREFIX}exclude_input_from_output", "BOOL"),
}
LLM_API = ModelApi("LLMAPI", "tensorrt_llm_stream", _LLM_API, (-1,))
APIS = (BLS, LLM_API)


def infer_inputs(request: Request, api: ModelApi) -> list[Any]:
    """The `InferInput`s of a streaming request; it must not name `num_draft_tokens` or `refused_text` where the API
    has no such tensor."""
    sampling = request.sampling
    values = {
        "text": request.prompt.encode(),
        "max_tokens": sampling.max_tokens,
        "num_draft_tokens": request.num_draft_tokens,
        **{parameter.name: getattr(sampling, parameter.name) for parameter in _OWN},
        "top_p": sampling.share,
        "stop_words": [word.encode() for word in sampling.stop_words] or None,
        "bad_words": [word.encode() for word in sampling.bad_words] or None,
        "stream": True,
        "exclude_input": True,
        "refused_text": request.refused_text or None,
    }
    return [_input(api, field, value) for field, value in values.items() if value is not None]


def _input(api: ModelApi, field: str, value: Any) -> Any:
    name, datatype = api.tensors[field]
    array = np.array(value, triton_to_np_dtype(datatype)).reshape(api.shape)
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor
