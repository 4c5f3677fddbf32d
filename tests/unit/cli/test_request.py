"""What is sent to the server, and which requests must not depend on speculation."""

from typing import Any

import numpy as np
import pytest

from tandem.client.generate.request import BLS, LLM_API, ModelApi, Request, Sampling, infer_inputs


def sent(request: Request, api: ModelApi = BLS) -> dict[str, tuple[str, list[Any]]]:
    """Datatype and values of each input as the server would read them; all are [1, n], or [n]."""
    tensors = {}
    for tensor in infer_inputs(request, api):
        assert tensor.shape()[:-1] == ([1] if api is BLS else [])
        raw = tensor._get_content()
        sizes = {"INT32": np.int32, "FP32": np.float32, "UINT64": np.uint64, "BOOL": np.bool_}
        datatype = tensor.datatype()
        values = _strings(raw) if datatype == "BYTES" else np.frombuffer(raw, sizes[datatype]).tolist()
        assert len(values) == tensor.shape()[-1]
        tensors[tensor.name()] = (datatype, values)
    return tensors


def _strings(raw: bytes) -> list[str]:
    texts = []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        texts.append(raw[4 : 4 + size].decode())
        raw = raw[4 + size :]
    return texts


def test_what_is_not_asked_for_is_left_to_the_service() -> None:
    assert sent(Request("def é():", Sampling(64))) == {
        "text_input": ("BYTES", ["def é():"]),
        "max_tokens": ("INT32", [64]),
        "stream": ("BOOL", [True]),
        "exclude_input_in_output": ("BOOL", [True]),
    }


def test_all_that_can_be_asked_for() -> None:
    sampling = Sampling(8, temperature=0.5, top_k=4, top_p=0.75, seed=2**64 - 1, stop_words=("\n\n", "class"))
    tensors = sent(Request("p", sampling, num_draft_tokens=0, refused_text=True))
    assert tensors["return_refused_draft_text"] == ("BOOL", [True])
    assert tensors["num_draft_tokens"] == ("INT32", [0]), "0 is the target alone, not the default"
    assert tensors["temperature"] == ("FP32", [0.5])
    assert tensors["top_k"] == ("INT32", [4])
    assert tensors["top_p"] == ("FP32", [0.75])
    assert tensors["seed"] == ("UINT64", [2**64 - 1])
    assert tensors["stop_words"] == ("BYTES", ["\n\n", "class"])


def test_mode_llmapi_has_its_own_names() -> None:
    sampling = Sampling(8, temperature=0.5, top_k=4, top_p=0.75, seed=7, stop_words=("\n\n", "class"))
    assert sent(Request("p", sampling), LLM_API) == {
        "text_input": ("BYTES", ["p"]),
        "sampling_param_max_tokens": ("INT32", [8]),
        "sampling_param_temperature": ("FP32", [0.5]),
        "sampling_param_top_k": ("INT32", [4]),
        "sampling_param_top_p": ("FP32", [0.75]),
        "sampling_param_seed": ("UINT64", [7]),
        "sampling_param_stop": ("BYTES", ["\n\n", "class"]),
        "streaming": ("BOOL", [True]),
        "sampling_param_exclude_input_from_output": ("BOOL", [True]),
    }


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (Sampling(1), True),
        (Sampling(1, temperature=0), True),
        (Sampling(1, temperature=1, top_k=1), True),
        (Sampling(1, seed=7), True),
        (Sampling(1, temperature=0.8), False),
        (Sampling(1, top_k=5), False),
        (Sampling(1, top_p=0.9), False),
        (Sampling(1, temperature=0.8, top_p=0), True),
    ],
    ids=[
        "default",
        "no temperature",
        "one candidate",
        "a seed alone samples nothing",
        "temperature",
        "k",
        "p",
        "no p",
    ],
)
def test_greedy(sampling: Sampling, greedy: bool) -> None:
    assert sampling.greedy is greedy


@pytest.mark.parametrize("api", [BLS, LLM_API], ids=["BLS", "LLMAPI"])
@pytest.mark.parametrize(
    ("sampling", "share"),
    [
        (Sampling(1, temperature=0.8), [1.0]),
        (Sampling(1, top_k=0), [1.0]),
        (Sampling(1, temperature=0.8, top_k=5), None),
        (Sampling(1, temperature=0.8, top_p=0.5), [0.5]),
        (Sampling(1, temperature=0), None),
        (Sampling(1), None),
    ],
    ids=["temperature", "no limit", "k", "p", "greedy by temperature", "greedy"],
)
def test_a_temperature_alone_samples(sampling: Sampling, share: list[float] | None, api: ModelApi) -> None:
    tensor = sent(Request("p", sampling), api).get(api.tensors["top_p"][0])
    assert tensor == (share and ("FP32", share)), "without top_k and top_p an engine would be greedy"
