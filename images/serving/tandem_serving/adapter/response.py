"""Responses to clients of the BLS models."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import forward
from tandem_serving.adapter.errors import triton_error
from tandem_serving.chunks import Chunk, Summary
from tandem_serving.errors import ServingError
from tandem_serving.request import Array

ONE_RESPONSE = "one_response"


class TritonResponder:
    """A Triton request's response sender; outputs that the client did not ask for are left out.

    With the request parameter `ONE_RESPONSE`, for `tensorrt_llm_bls`, all prompts come in one response, and
    so does an error: its code as finish_reason, its message as text_output. Triton drops the codes of
    errors between models; why one response: see loop.py.
    """

    def __init__(self, triton_request: Any) -> None:
        self._sender = triton_request.get_response_sender()
        self._wanted = set(triton_request.requested_output_names())
        self._one_response = ONE_RESPONSE in json.loads(triton_request.parameters() or "{}")
        self._rows: list[dict[str, Array]] = []

    def send(self, chunk: Chunk, last: bool) -> None:
        """Send a chunk as [1, ...] tensors."""
        arrays = chunk_tensors(chunk)
        if self._one_response:
            self._rows.append(arrays)
            if not last:
                return
            arrays = forward.merge(self._rows)
        tensors = [
            pb_utils.Tensor(name, value) for name, value in arrays.items() if not self._wanted or name in self._wanted
        ]
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
        self._sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags)

    def fail(self, error: ServingError) -> None:
        """Send an error as the last response."""
        if self._one_response:
            self._rows.clear()
            self.send(Chunk(0, str(error), finish_reason=error.code), last=True)
            return
        response = pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))
        self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def close(self) -> None:
        """End without a response."""
        self._sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        return bool(self._sender.is_cancelled())


def chunk_tensors(chunk: Chunk) -> dict[str, Array]:
    """A chunk's output tensors by name, batch dimension 1."""
    tensors: dict[str, Array] = {
        # One dimension, as upstream's: its clients take the first element for a text.
        "text_output": np.array([chunk.text.encode()], np.object_),
        "output_ids": np.array([chunk.ids], np.int32),
        "num_accepted_draft_tokens": _int(chunk.accepted),
        "draft_text_length": _int(chunk.draft_length),
        "finish_reason": np.array([[chunk.finish_reason.encode()]], np.object_),
        "batch_index": _int(chunk.batch_index),
    }
    if chunk.cum_log_prob is not None:
        tensors["cum_log_probs"] = np.array([[chunk.cum_log_prob]], np.float32)
    if chunk.log_probs is not None:
        tensors["output_log_probs"] = chunk.log_probs[None, None]
    if chunk.logits is not None:
        tensors["generation_logits"] = chunk.logits[None, None]
    return tensors | (_summary_tensors(chunk.summary) if chunk.summary else {})


def _summary_tensors(summary: Summary) -> dict[str, Array]:
    return {
        "acceptance_rate": np.array([[summary.acceptance_rate]], np.float32),
        "total_accepted_draft_tokens": _int(summary.accepted_draft_tokens),
        "total_draft_tokens": _int(summary.draft_tokens),
        "num_input_tokens": _int(summary.input_tokens),
        "num_output_tokens": _int(summary.output_tokens),
    }


def _int(value: int) -> Array:
    return np.array([[value]], np.int32)
