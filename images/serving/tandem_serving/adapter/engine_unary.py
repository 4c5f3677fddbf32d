"""A decoupled engine for clients that make unary calls: the code of `tensorrt_llm` and `tensorrt_llm_draft`.

What TensorRT-LLM's backend does where it is not decoupled: one response to a request, no streaming, and a request
with `stop` ends those with the same id. Several clients may use the same ids, so each call has an id of its own: who
goes away ends his own calls only. Beyond TensorRT-LLM, a request may hold several sequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import threads
from tandem_serving.adapter.merge import merge
from tandem_serving.adapter.unary import STOP, Unary
from tandem_serving.errors import FAILED, EngineError
from tandem_serving.requests.tensors import Array

BLS = "speculative_bls"
STOPPING = 4
"""Threads that stop calls."""


class EngineUnary(Unary):
    """The class that Triton's Python backend looks for, as `TritonPythonModel`."""

    needed = ()

    def initialize(self, args: dict[str, str]) -> None:
        """Read the engine's name and the number of requests at once."""
        super().initialize(args)
        self._under_way: dict[str, set[str]] = defaultdict(set)  # calls by the ids of the clients' requests
        self._stopping = ThreadPoolExecutor(STOPPING, thread_name_prefix="stop")

    def execute(self, requests: list[Any]) -> None:
        """Start the requests, or stop others."""
        for request in requests:
            inputs = {tensor.name(): tensor for tensor in request.inputs()}
            if STOP in inputs and inputs[STOP].as_numpy().any():
                self._stopping.submit(self._stop_named, request).add_done_callback(self._look_at)
            else:
                super().execute([request])

    def finalize(self) -> None:
        """End the threads; the engine ends its own requests."""
        with threads.ending():
            self._stopping.shutdown(cancel_futures=True)
        super().finalize()

    def _no_stream(self) -> str:
        return (
            "streaming is not possible here: this model is not decoupled and answers a request once; leave it out, "
            f"or stream from {BLS}"
        )

    @contextmanager
    def _calls_of(self, request: Any, inputs: list[Any]) -> Iterator[dict[str, list[Any]]]:
        """One for each sequence: calls with several responses can lock Triton's Python backend up
        (docs/explanation/triton-backend.md)."""
        calls = {self._call_id(): row for row in _rows(inputs)}
        name = request.request_id()
        with self._lock:
            self._under_way[name] |= calls.keys()
        try:
            yield calls
        finally:
            with self._lock:
                self._under_way[name] -= calls.keys()
                if not self._under_way[name]:
                    del self._under_way[name]

    def _together(self, answers: list[dict[str, Array]]) -> dict[str, Array]:
        if len(answers) == 1:
            return answers[0]
        if not all(answers):
            raise EngineError("the engine ended a call without an answer")
        return merge([answer | {"batch_index": np.array([[i]], np.int32)} for i, answer in enumerate(answers)])

    def _stop_named(self, request: Any) -> None:
        """End what is under way by the request's id, and answer without outputs, as the engine does."""
        error = pb_utils.TritonError(FAILED)
        try:
            with self._lock:
                calls = [*self._under_way.get(request.request_id(), ())] if request.request_id() else []
            for call_id in calls:
                self._stop(call_id, [self._with_row_length(tensor) for tensor in request.inputs()])
            error = None
        except EngineError as raised:
            error = pb_utils.TritonError(str(raised))
        finally:
            response = pb_utils.InferenceResponse(output_tensors=[], error=error)
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _rows(inputs: list[Any]) -> list[list[Any]]:
    """Each sequence's tensors; `input_ids` without its filling, which TensorRT-LLM takes off only of several rows."""
    arrays = {tensor.name(): tensor.as_numpy() for tensor in inputs}
    count, lengths = len(arrays["input_ids"]), arrays["input_lengths"].reshape(-1)
    if count == 1:
        return [inputs]
    rows = [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(count)]
    for row, length in zip(rows, lengths.tolist(), strict=True):
        row["input_ids"] = row["input_ids"][:, : max(length, 0)]
    return [[pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in row.items()] for row in rows]
