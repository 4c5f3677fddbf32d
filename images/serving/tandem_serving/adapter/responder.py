"""What the responses of all models have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import merge
from tandem_serving.adapter.triton_errors import triton_error
from tandem_serving.adapter.watchdog import Watchdog
from tandem_serving.errors import ServingError, faults_as_errors
from tandem_serving.requests.active import P, Responder, ResponseChunk
from tandem_serving.requests.request_parameters import ONE_RESPONSE, OURS, KnownParameters
from tandem_serving.requests.tensors import Array

_triton = Watchdog()
MadeP = TypeVar("MadeP", bound=ResponseChunk, covariant=True)


class RequestHandler(Protocol[MadeP]):
    """What runs a model's requests."""

    def submit(self, tensors: Mapping[str, Array], request_id: str, responder: Responder[MadeP]) -> None:
        """Start a request; everything that is wrong with it goes to `responder`."""
        ...

    def cancel(self, request_id: str) -> None:
        """End all requests with this id."""
        ...


def dispatch(
    service: RequestHandler[P], triton_request: Any, responder: TritonResponder[P], known: KnownParameters
) -> None:
    """Start a request, or with the input `stop` end those with its id. `known`: what it may have as parameters."""
    try:
        with faults_as_errors("a request could not be taken"):
            tensors = {tensor.name(): tensor.as_numpy() for tensor in triton_request.inputs()}
            known.check(responder.parameters, tensors)
            if "stop" in tensors and tensors["stop"].any():
                service.cancel(triton_request.request_id())
                responder.close()
            else:
                service.submit(tensors, triton_request.request_id(), responder)
    except ServingError as error:
        responder.fail(error)


class TritonResponder(ABC, Generic[P]):
    """A Triton request's response sender. `wanted`: the outputs that the client asked for; Triton drops others.
    `parameters`: names of the request's parameters.

    With the request parameter `ONE_RESPONSE`, which the unary models set, all prompts come in one response; why: see
    loop.py. With one of `OURS` so does an error: its code as finish_reason, its message as text_output. Triton drops
    the codes of errors between models, and in gRPC streams.
    """

    def __init__(self, triton_request: Any) -> None:
        self._sender = triton_request.get_response_sender()
        self.wanted = frozenset(triton_request.requested_output_names())
        self.parameters = frozenset(json.loads(triton_request.parameters() or "{}"))
        self._one_response = ONE_RESPONSE in self.parameters
        self._error_as_response = bool(OURS & self.parameters)
        self._rows: list[dict[str, Array]] = []

    @abstractmethod
    def arrays(self, chunk: P) -> dict[str, Array]:
        """A chunk's outputs by name, the first dimension 1; with a `batch_index`."""

    def tensors(self, chunk: P) -> list[Any]:
        """A chunk's outputs that the client wants, as pb_utils.Tensor."""
        return [pb_utils.Tensor(name, value) for name, value in self.arrays(chunk).items() if name in self.wanted]

    def send(self, chunk: P, last: bool) -> None:
        """Send a chunk, as the last one or not."""
        if self._one_response:
            self._collect(self.arrays(chunk), last)
        else:
            self._send(pb_utils.InferenceResponse(self.tensors(chunk)), last)

    def fail(self, error: ServingError) -> None:
        """Send an error as the last response."""
        if self._error_as_response:
            texts = {"finish_reason": error.code, "text_output": str(error)}
            tensors = [pb_utils.Tensor(name, np.array([text.encode()], np.object_)) for name, text in texts.items()]
            self._send(pb_utils.InferenceResponse(tensors), last=True)
            return
        self._send(pb_utils.InferenceResponse([], triton_error(error)), last=True)

    def close(self) -> None:
        """End without a response."""
        with _triton:
            self._sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        with _triton:
            return bool(self._sender.is_cancelled())

    def _collect(self, row: dict[str, Array], last: bool) -> None:
        self._rows.append(row)
        if last:
            merged = merge.merge(self._rows)
            tensors = [pb_utils.Tensor(name, value) for name, value in merged.items()]
            self._send(pb_utils.InferenceResponse(tensors), last)

    def _send(self, response: Any, last: bool) -> None:
        with _triton:
            self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)
