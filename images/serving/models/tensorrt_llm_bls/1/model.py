"""Triton entry of `tensorrt_llm_bls`: one response for unary clients, made by the speculative BLS.

Triton refuses unary calls to decoupled models, and upstream's clients make them. Requests run on threads,
so one instance serves many at once.
"""

import itertools
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import adapter
from tandem_serving.adapter.errors import plain_error, raise_in_band, triton_error
from tandem_serving.adapter.response import ONE_RESPONSE
from tandem_serving.adapter.stream import start
from tandem_serving.errors import FAILED, CancelledError, EngineError, RequestError, ServingError
from tandem_serving.request import Array

CANCEL_POLL_SECONDS = 0.1
# Outputs that are read here, asked for or not.
NEEDED = ("finish_reason", "text_output")


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the name of the decoupled model and the number of requests at once."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        parameters = adapter.parameters(args)
        running = int(parameters.get("max_running_sequences") or "64")
        self._model = parameters.get("speculative_bls_model_name") or "speculative_bls"
        self._prefix = f"unary-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._requests = ThreadPoolExecutor(running, thread_name_prefix="request")
        self._calls = ThreadPoolExecutor(running, thread_name_prefix="call")

    def execute(self, requests: list[Any]) -> None:
        """Start the requests; each is answered from its thread."""
        for request in requests:
            self._requests.submit(self._answer, request).add_done_callback(_log_failure)

    def finalize(self) -> None:
        """End the threads; the decoupled model ends its own requests."""
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._calls.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Any) -> None:
        sender = request.get_response_sender()
        response = None
        try:
            tensors = [pb_utils.Tensor(name, value) for name, value in self._run(request, sender).items()]
            response = pb_utils.InferenceResponse(output_tensors=tensors)
        except ServingError as error:
            response = _error_response(error)
        finally:
            failed = EngineError(FAILED)
            sender.send(response or _error_response(failed), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _run(self, request: Any, sender: Any) -> dict[str, Array]:
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        if stream is not None and stream.as_numpy().any():
            raise RequestError(f"this model answers once: to stream, call {self._model} with the same tensors")
        call_id = f"{self._prefix}-{next(self._numbers)}"
        call = pb_utils.InferenceRequest(
            model_name=self._model,
            request_id=call_id,
            requested_output_names=[*{*request.requested_output_names(), *NEEDED}],
            inputs=[_with_row_length(tensor) for tensor in request.inputs()],
            parameters={ONE_RESPONSE: True},
        )
        future = self._calls.submit(_collect, call)
        while not wait([future], CANCEL_POLL_SECONDS).done:
            if sender.is_cancelled():
                self._stop(call_id)
                raise CancelledError("the client cancelled the request")
        return future.result()

    def _stop(self, call_id: str) -> None:
        inputs = [
            pb_utils.Tensor("text_input", np.array([[b""]], np.object_)),
            pb_utils.Tensor("max_tokens", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("stop", np.ones((1, 1), np.bool_)),
        ]
        stop = pb_utils.InferenceRequest(
            model_name=self._model, request_id=call_id, requested_output_names=["batch_index"], inputs=inputs
        )
        self._calls.submit(_collect, stop)


def _with_row_length(tensor: Any) -> Any:
    """The tensor as clients send it: flags come here as [n], reshaped by the configuration, and go on as [n, 1]."""
    if len(tensor.shape()) > 1:
        return tensor
    return pb_utils.Tensor(tensor.name(), tensor.as_numpy().reshape(-1, 1))


def _collect(call: Any) -> dict[str, Array]:
    """The tensors of the one response; {} for a call that only stops another. Raises EngineError."""
    row: dict[str, Array] = {}
    try:
        for response in start(call):
            if response.has_error():
                raise plain_error(response.error())
            row = row or {tensor.name(): tensor.as_numpy().copy() for tensor in response.output_tensors()}
    except pb_utils.TritonModelException as error:
        raise EngineError(str(error)) from None
    if row:
        raise_in_band(row)
    return row


def _error_response(error: ServingError) -> Any:
    return pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))


def _log_failure(done: Any) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logging.getLogger("tandem.unary").error("a request broke off", exc_info=error)
