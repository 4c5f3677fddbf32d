"""A decoupled engine as one that answers all rows of a call at once: the code of the collector models.

TensorRT-LLM's backend takes calls of several rows only where it is decoupled, and then answers each row by itself.
Where several such calls are under way in one process, Triton's Python backend can lock up (docs/bls.md): its thread
that takes a response holds one lock and wants another, which a thread that waits for the interpreter has. Here each
process has one call at a time, so nobody else waits; a service has as many processes as calls are to be under way.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import adapter
from tandem_serving.forward import merge
from tandem_serving.inputs import Array
from tandem_serving.iterators import responses

INDEX = "batch_index"
_FIRST = np.zeros((1, 1), np.int32)


class Collector:
    """The class that Triton's Python backend looks for, as `TritonPythonModel`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the engine's name."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        self._engine = adapter.parameters(args)["decoupled_model_name"]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Make the engine calls, one after the other."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """All rows; or one's error, when all have ended: who asked may then ask for each by itself."""
        # Triton adds this class to pb_utils only once the model is initialized.
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
        call = pb_utils.InferenceRequest(
            model_name=self._engine,
            request_id=request.request_id(),  # a stop goes to the engine itself, by this
            requested_output_names=[*{*request.requested_output_names(), INDEX}],
            inputs=request.inputs(),
            preferred_memory=memory,
        )
        try:
            answers = list(responses(call))
        except pb_utils.TritonModelException as error:
            return _failed(pb_utils.TritonError(str(error)))
        if errors := [answer.error() for answer in answers if answer.has_error()]:
            return _failed(errors[0])
        rows = [row for answer in answers if (row := _tensors(answer))]
        if not rows:
            return _failed(pb_utils.TritonError(f"{self._engine} ended a call without an answer"))
        if len(rows) == 1:
            rows[0].setdefault(INDEX, _FIRST)  # TensorRT-LLM tells it where there are several
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in merge(rows).items()])


def _tensors(answer: Any) -> dict[str, Array]:
    return {tensor.name(): tensor.as_numpy() for tensor in answer.output_tensors()}


def _failed(error: Any) -> Any:
    return pb_utils.InferenceResponse(output_tensors=[], error=error)
