"""Parameters of requests that TensorRT-LLM's LLM API follows, by version and decoding type.

Upstream's sources and pull requests were read on 2026-11-28; nothing of it has run here. For 1.2.1 they are:
`DecodingBaseConfig.allow_advanced_sampling`, false by default (llmapi/llm_args.py);
`SpecMetadata.populate_sampling_params_for_one_model` and `SpecWorkerBase._sample_tokens_for_batch`, which know
temperature, top-k and top-p and take the argmax without that switch (_torch/speculative/interface.py);
`_request_get_sampling_params` and the one generator of TorchSampler (_torch/pyexecutor/sampler.py).
"""

from collections.abc import Mapping
from typing import Any

from tandem.engines.request_parameters import PENALTIES, SAMPLING, SPECULATION, Entry, Facts, Outcome, all_of
from tandem.engines.tensorrt_llm.dialect import Dialect

_PULL = "https://github.com/NVIDIA/TensorRT-LLM/pull"
_CODE = "https://github.com/NVIDIA/TensorRT-LLM/blob/v1.2.1"
_INTERFACE = f"{_CODE}/tensorrt_llm/_torch/speculative/interface.py"
_NOT_ONE_MODEL = {
    **all_of(("min_p", "min_tokens", "bad_words"), Outcome.IGNORED, "drops it", f"{_PULL}/17955"),
    **all_of(("logprobs", "best_of"), Outcome.REFUSED, "computes no log probabilities", f"{_PULL}/17955"),
}
_NOT_ONE_MODEL_1_3 = {
    **_NOT_ONE_MODEL,
    **all_of(("min_p", "min_tokens", "bad_words"), Outcome.REFUSED, "refuses it", f"{_PULL}/17955"),
}
_ALONE = "repeats a text only where the request is the first of its batch: the sampling kernels read one seed a call"
_SEED_1_3 = {"seed": Entry(Outcome.PARTLY, _ALONE, "https://github.com/flashinfer-ai/flashinfer/pull/2345")}
_PROMPT_COUNTS = "counts the prompt's tokens, too, so that a long prompt leaves nothing of it"
_DROPS = {
    "seed": Entry(Outcome.IGNORED, "draws all requests from one generator", f"{_PULL}/17172"),
    **all_of(PENALTIES, Outcome.IGNORED, "drops it", f"{_PULL}/16485"),
    "min_p": Entry(Outcome.IGNORED, "drops it", f"{_PULL}/16590"),
    "bad_words": Entry(Outcome.IGNORED, "drops it", f"{_PULL}/16052"),
    "min_tokens": Entry(Outcome.PARTLY, _PROMPT_COUNTS, f"{_PULL}/12166"),
}
_ONE_MODEL_DROPS = {
    "seed": Entry(Outcome.IGNORED, "draws all requests from one generator", f"{_PULL}/17599"),
    **all_of(PENALTIES, Outcome.IGNORED, "drops it", f"{_PULL}/17701"),
}
_LIKELIEST = "compares drafts with the likeliest tokens, and draws none"

TORCH_1_2 = Facts(
    "decodingType DraftTarget, NGram, UserProvided or None, or Eagle3 with oneModel false",
    _DROPS,
    instead="leave it out, or use mode BLS or TensorRT-LLM 1.3",
)
CPP_1_2 = Facts("decodingType None with runtime.extraLlmArgs.sampler_type TRTLLMSampler")
ONE_MODEL_1_2 = Facts(
    "decodingType Eagle3 or MTP",
    {
        **all_of(SAMPLING, Outcome.SWITCH, "takes the likeliest token without it", _INTERFACE),
        **_ONE_MODEL_DROPS,
        **_NOT_ONE_MODEL,
    },
    switch="allow_advanced_sampling",
    instead="leave it out, or use mode BLS",
)
TORCH_1_3 = Facts("decodingType NGram, UserProvided or None", _SEED_1_3)
ONE_MODEL_1_3 = Facts(
    "decodingType DraftTarget, Eagle3, MTP, DFlash, DSpark; Custom with type PARD or SA",
    {
        **_SEED_1_3,
        **all_of(PENALTIES, Outcome.SWITCH, "refuses them without it", f"{_PULL}/17701"),
        **_NOT_ONE_MODEL_1_3,
    },
    switch="enable_penalty",
    instead="leave it out, or use decodingType NGram or None",
)
TREE_1_3 = Facts(
    "speculation.eagle3.dynamicTreeMaxTopK",
    {
        **_SEED_1_3,
        **all_of(PENALTIES, Outcome.REFUSED, "refuses them for trees", f"{_PULL}/17701"),
        **_NOT_ONE_MODEL_1_3,
    },
    instead="leave it out, or remove speculation.eagle3.dynamicTreeMaxTopK",
)
RELAXED = Facts(
    "speculation.mtp.relaxedAcceptance, in every version",
    {
        **all_of(SAMPLING, Outcome.IGNORED, _LIKELIEST, f"{_CODE}/tensorrt_llm/_torch/speculative/mtp.py"),
        **_ONE_MODEL_DROPS,
        **_NOT_ONE_MODEL,
    },
    instead="leave it out, or remove speculation.mtp.relaxedAcceptance",
    to_draw="send temperature 0, or remove speculation.mtp.relaxedAcceptance",
)
UNKNOWN = Facts("Custom with any other type: all is passed on, and the engine decides", shown=False)
TABLE: Mapping[str, Facts] = {
    "1.2": TORCH_1_2,
    "1.2, TRTLLMSampler": CPP_1_2,
    "1.2, one model": ONE_MODEL_1_2,
    "1.3, 1.4": TORCH_1_3,
    "1.3, 1.4, one model": ONE_MODEL_1_3,
    "1.3, 1.4, dynamic tree": TREE_1_3,
    "relaxed acceptance": RELAXED,
    "a type that only the image knows": UNKNOWN,
}
_APART = ("eagle3_one_model", "mtp_eagle_one_model")
"""Fields that 1.2 has: false means that drafts come from a model of their own."""


def facts_of(dialect: Dialect, arguments: Mapping[str, Any]) -> Facts:
    """What is known of an engine with these arguments."""
    speculation, old = arguments.get(SPECULATION) or {}, dialect is Dialect.V1_2
    if speculation.get("use_relaxed_acceptance_for_thinking"):
        return RELAXED
    if old and not speculation and arguments.get("sampler_type") == "TRTLLMSampler":
        return CPP_1_2
    kind = speculation.get("decoding_type")
    two_models = kind in dialect.facts.two_models or any(speculation.get(name) is False for name in _APART)
    if not speculation or two_models:
        return TORCH_1_2 if old else TORCH_1_3
    if kind not in dialect.facts.one_model:
        return UNKNOWN
    if old:
        return ONE_MODEL_1_2
    return TREE_1_3 if speculation.get("use_dynamic_tree") else ONE_MODEL_1_3
