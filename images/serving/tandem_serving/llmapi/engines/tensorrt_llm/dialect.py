"""What differs between TensorRT-LLM's versions, and what its results look like: all of it is here.

| matter | 1.2 (`trtllm-26.07`) | 1.3 and newer | read in |
|---|---|---|---|
| mappings in the arguments | an update function makes objects of some | `LLM` takes them | llmapi/llm_args.py |
| whether the engine lives | `_executor.is_shutdown()` | `_check_health()` | llmapi/llm.py |
| drafted, accepted tokens | zeros, even when drafting | reported | pull request 17082 |
| tokens an iteration | `avg_decoded_tokens_per_iter` | the same | executor/result.py |
| rounds by accepted tokens | no | not yet: by Tandem's own engine | pull request 19311 |
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tandem_serving.llmapi.chunks import RequestMetrics

# Upstream's output to the attributes of RequestPerfMetrics (cpp/tensorrt_llm/nanobind/executor/bindings.cpp).
_PERF = {
    "kv_cache_reused_block": ("kv_cache_metrics", "num_reused_blocks"),
    "kv_cache_missed_block": ("kv_cache_metrics", "num_missed_blocks"),
    "kv_cache_alloc_new_blocks": ("kv_cache_metrics", "num_new_allocated_blocks"),
    "kv_cache_alloc_total_blocks": ("kv_cache_metrics", "num_total_allocated_blocks"),
    "kv_cache_hit_rate": ("kv_cache_metrics", "kv_cache_hit_rate"),
    "arrival_time_ns": ("timing_metrics", "arrival_time"),
    "first_scheduled_time_ns": ("timing_metrics", "first_scheduled_time"),
    "first_token_time_ns": ("timing_metrics", "first_token_time"),
    "last_token_time_ns": ("timing_metrics", "last_token_time"),
}


# Where the class of the arguments is: `TorchLlmArgs` since 0.20, `LlmArgs` is its alias in later versions.
_CLASSES = ("llmapi.llm_args:TorchLlmArgs", "llmapi.llm_args:LlmArgs")


def find(package: str, name: str, module: str = "") -> Any:
    """`name` of a package with TensorRT-LLM's modules. Raises ImportError.

    Imported when it is needed: importing TensorRT-LLM opens the GPUs.
    """
    found = importlib.import_module(f"{package}.{module}" if module else package)
    try:
        return getattr(found, name)
    except AttributeError:
        raise ImportError(f"{found.__name__} has no {name}") from None


def argument_class(package: str) -> Any:
    """The class. Raises ImportError, and what the package's libraries raise where they miss the driver: anything."""
    for place in _CLASSES:
        module, name = place.split(":")
        found = getattr(importlib.import_module(f"{package}.{module}"), name, None)
        if found is not None:
            return found
    raise ImportError(f"{package} has neither {' nor '.join(_CLASSES)}")


def llm_arguments(arguments: Mapping[str, Any], package: str) -> dict[str, Any]:
    """The arguments of `LLM` from those of the YAML file, made as upstream's Triton model makes them.

    That model calls `update_llm_args_with_extra_dict` (triton_backend/all_models/llmapi/tensorrt_llm/1/model.py).
    """
    mine = {name: _copied(value) for name, value in arguments.items()}
    try:
        update = find(package, "update_llm_args_with_extra_dict", "llmapi.llm_utils")
    except ImportError:  # a version whose LLM takes the mappings themselves
        return mine
    made: dict[str, Any] = update({}, mine)
    return made


def _copied(value: Any) -> Any:
    """Mappings anew, since 1.2 takes `decoding_type` out of the one that it is given; what they hold is the same."""
    return {name: _copied(each) for name, each in value.items()} if isinstance(value, dict) else value


def healthy(llm: Any) -> bool:
    """Whether the engine behind an `LLM` lives, as far as it knows."""
    check = getattr(llm, "_check_health", None)
    if check is not None:
        return bool(check())
    executor = getattr(llm, "_executor", None)
    return executor is not None and not executor.is_shutdown()


def log_probs(completion: Any) -> list[float]:
    """Of a CompletionOutput's tokens, where they were asked for; some samplers have them by token."""
    given = getattr(completion, "logprobs", None) or ()
    return [
        each[token].logprob if isinstance(each, Mapping) else float(each)
        for token, each in zip(completion.token_ids, given, strict=False)
    ]


def metrics(result: Any) -> RequestMetrics:
    """What a RequestOutput reports besides tokens. What it does not report is left out."""
    metrics = getattr(result.outputs[0], "request_perf_metrics", None)
    speculation = getattr(metrics, "speculative_decoding", None)
    drafted = getattr(speculation, "total_draft_tokens", 0)
    return RequestMetrics(
        tokens_per_iteration=getattr(result, "avg_decoded_tokens_per_iter", None) or None,
        draft_tokens=drafted or None,
        accepted_draft_tokens=speculation.total_accepted_draft_tokens if speculation and drafted else None,
        perf={} if metrics is None else _perf(metrics),
        rounds=tuple(getattr(speculation, "acceptance_histogram", ())),
    )


def _perf(metrics: Any) -> dict[str, float]:
    values = {name: getattr(getattr(metrics, part), attribute) for name, (part, attribute) in _PERF.items()}
    return {
        name: value // timedelta(microseconds=1) * 1000 if isinstance(value, timedelta) else value
        for name, value in values.items()
        if value != timedelta(0)  # a time that has not come
    }
