"""Responses to clients of the BLS models."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter.responder import TritonResponder
from tandem_serving.bls.chunks import BlsChunk, BlsSummary
from tandem_serving.requests.tensors import Array


class BlsResponder(TritonResponder[BlsChunk]):
    """Sends chunks as [1, ...] tensors."""

    def arrays(self, chunk: BlsChunk) -> dict[str, Array]:
        """All of a chunk's outputs."""
        return chunk_arrays(chunk) | {name: small(value) for name, value in chunk_numbers(chunk).items()}

    def tensors(self, chunk: BlsChunk) -> list[Any]:
        """Those that the client wants, as Triton's tensors."""
        wanted, known = self.wanted, _local.constants
        tensors = [pb_utils.Tensor(name, value) for name, value in chunk_arrays(chunk).items() if name in wanted]
        return tensors + [known[number] for number in chunk_numbers(chunk).items() if number[0] in wanted]


class _Constants(dict[tuple[str, int | str], Any]):
    """Tensors by name and value of small numbers and finish reasons, made once: most of a chunk's are the same."""

    MOST = 4096

    def __missing__(self, key: tuple[str, int | str]) -> Any:
        """The pb_utils.Tensor of a value that comes for the first time."""
        name, value = key
        tensor = pb_utils.Tensor(name, small(value))
        if len(self) < self.MOST:
            self[key] = tensor
        return tensor


class _Local(threading.local):
    """What each thread has for itself: Triton writes a tensor to shared memory when it is first sent, unlocked."""

    def __init__(self) -> None:
        self.constants = _Constants()


_local = _Local()


def small(value: int | str) -> Array:
    """A number as int32[1, 1], a word as object[1, 1]."""
    return np.array([[value]], np.int32) if isinstance(value, int) else np.array([[value.encode()]], np.object_)


def chunk_numbers(chunk: BlsChunk) -> dict[str, int | str]:
    """A chunk's outputs that are one number or word, by name."""
    numbers: dict[str, int | str] = {
        "num_accepted_draft_tokens": chunk.accepted,
        "draft_text_length": chunk.draft_length,
        "finish_reason": chunk.finish_reason,
        "batch_index": chunk.batch_index,
    }
    return numbers | (_summary_numbers(chunk.summary) if chunk.summary else {})


def chunk_arrays(chunk: BlsChunk) -> dict[str, Array]:
    """A chunk's other outputs by name, batch dimension 1."""
    arrays: dict[str, Array] = {
        # One dimension, as upstream's: its clients take the first element for a text.
        "text_output": np.array([chunk.text.encode()], np.object_),
        "output_ids": np.array([chunk.ids], np.int32),
    }
    if chunk.refused is not None:
        arrays["refused_draft_text"] = np.array([[chunk.refused.encode()]], np.object_)
    if chunk.cum_log_prob is not None:
        arrays["cum_log_probs"] = np.array([[chunk.cum_log_prob]], np.float32)
    if chunk.log_probs is not None:
        arrays["output_log_probs"] = chunk.log_probs[None, None]
    if chunk.logits is not None:
        arrays["generation_logits"] = chunk.logits[None, None]
    for name, value in (chunk.perf_metrics or {}).items():
        arrays[name] = np.array([[value]], np.int64 if name.endswith("_ns") else np.int32)
    if chunk.summary:
        arrays["acceptance_rate"] = np.array([[chunk.summary.acceptance_rate]], np.float32)
        if chunk.summary.rounds:
            arrays["acceptance_histogram"] = np.array([chunk.summary.rounds], np.int32)
    return arrays


def _summary_numbers(summary: BlsSummary) -> dict[str, int | str]:
    return {
        "total_accepted_draft_tokens": summary.accepted_draft_tokens,
        "total_draft_tokens": summary.draft_tokens,
        "num_input_tokens": summary.input_tokens,
        "num_output_tokens": summary.output_tokens,
    }
