"""A decoupled engine as one that answers all rows of a call at once: what that costs, for the benchmark.

Each process has one call at a time, so nobody comes back from a call while it waits for rows: with several in one
process, Triton's Python backend locks up (docs/bls.md).
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

OUTPUTS = ["output_ids", "sequence_length", "batch_index"]
Row = npt.NDArray[np.int32]


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """The engine is named after this model."""
        self._engine = args["model_name"] + "_engine"
        self._kept: deque[Any] = deque(maxlen=64)  # iterators: see tandem_serving/iterators.py

    def execute(self, requests: list[Any]) -> list[Any]:
        """Make the engine calls, one after the other."""
        return [self._call(request) for request in requests]

    def _call(self, request: Any) -> Any:
        inputs = [_with_row_length(tensor) for tensor in request.inputs()]
        call = pb_utils.InferenceRequest(
            model_name=self._engine, request_id=request.request_id(), requested_output_names=OUTPUTS, inputs=inputs
        )
        found = call.exec(decoupled=True)
        answers = list(found)
        self._kept.append(found)
        failed = [answer.error() for answer in answers if answer.has_error()]
        if failed:
            return pb_utils.InferenceResponse(output_tensors=[], error=failed[0])
        rows = dict(_row(answer) for answer in answers if answer.output_tensors())
        lengths = np.array([[len(rows[i])] for i in range(len(rows))], np.int32)
        ids = np.zeros((len(rows), 1, int(lengths.max(initial=0))), np.int32)
        for i, row in rows.items():
            ids[i, 0, : len(row)] = row
        tensors = [pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", lengths)]
        return pb_utils.InferenceResponse(output_tensors=tensors)


def _with_row_length(tensor: Any) -> Any:
    """As clients send it: what comes here as [n] goes on as [n, 1]."""
    return tensor if len(tensor.shape()) > 1 else pb_utils.Tensor(tensor.name(), tensor.as_numpy().reshape(-1, 1))


def _row(answer: Any) -> tuple[int, Row]:
    """Its place in the call, and its tokens."""
    tensors = {tensor.name(): tensor.as_numpy() for tensor in answer.output_tensors()}
    index = tensors["batch_index"].item() if "batch_index" in tensors else 0
    return index, tensors["output_ids"].reshape(-1).copy()
