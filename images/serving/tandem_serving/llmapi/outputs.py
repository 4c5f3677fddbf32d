"""A chunk as the tensors of upstream's LLM-API model, and our own. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem_serving.llmapi.chunks import LlmApiChunk, LlmApiSummary
from tandem_serving.requests.tensors import Array

# Performance figures of a request: upstream's names and types.
PERF: dict[str, type[np.generic]] = {
    "kv_cache_reused_block": np.int32,
    "kv_cache_missed_block": np.int32,
    "kv_cache_alloc_new_blocks": np.int32,
    "kv_cache_alloc_total_blocks": np.int32,
    "kv_cache_hit_rate": np.float32,
    "arrival_time_ns": np.int64,
    "first_scheduled_time_ns": np.int64,
    "first_token_time_ns": np.int64,
    "last_token_time_ns": np.int64,
}


def arrays(chunk: LlmApiChunk) -> dict[str, Array]:
    """A chunk's outputs by name, the first dimension 1."""
    outputs: dict[str, Array] = {
        "text_output": _word(chunk.text),
        "output_ids": np.array([chunk.ids], np.int32),
        "batch_index": _number(chunk.batch_index, np.int32),
        "finish_reason": _word(chunk.finish_reason),
    }
    if chunk.stop_reason is not None:
        outputs["stop_reason"] = _word(chunk.stop_reason)
    if chunk.cumulative_logprob is not None:
        outputs["cumulative_logprob"] = _number(chunk.cumulative_logprob, np.float32)
    rows = {"output_log_probs": chunk.log_probs, "prompt_log_probs": chunk.prompt_log_probs}
    outputs |= {name: np.array([row], np.float32) for name, row in rows.items() if row is not None}
    if chunk.prompt_ids is not None:
        outputs["prompt_ids"] = np.array([chunk.prompt_ids], np.int32)
    return outputs | (_summary(chunk.summary) if chunk.summary else {})


def _summary(summary: LlmApiSummary) -> dict[str, Array]:
    metrics = summary.metrics
    outputs = {
        "num_input_tokens": _number(summary.input_tokens, np.int32),
        "num_output_tokens": _number(summary.output_tokens, np.int32),
    }
    if metrics.tokens_per_iteration is not None:
        outputs["avg_decoded_tokens_per_iter"] = _number(metrics.tokens_per_iteration, np.float32)
    if metrics.draft_tokens is not None and metrics.accepted_draft_tokens is not None:
        rate = metrics.accepted_draft_tokens / metrics.draft_tokens if metrics.draft_tokens else 0.0
        outputs["acceptance_rate"] = _number(rate, np.float32)
        outputs["total_accepted_draft_tokens"] = _number(metrics.accepted_draft_tokens, np.int32)
        outputs["total_draft_tokens"] = _number(metrics.draft_tokens, np.int32)
    if metrics.rounds:
        outputs["acceptance_histogram"] = np.array([metrics.rounds], np.int32)
    return outputs | {name: _number(value, PERF[name]) for name, value in metrics.perf.items()}


def _number(value: float, dtype: Any) -> Array:
    return np.array([value], dtype)


def _word(text: str) -> Array:
    return np.array([text.encode()], np.object_)
