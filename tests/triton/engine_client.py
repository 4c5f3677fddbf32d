"""Calls to the engine models for tests and benchmarks: of decoupled models over one gRPC stream, of others unary.

No stream for the others: where streams carry calls of both kinds, Triton (2.51; by its source 2.73, too) can take
the first response of a decoupled call for its last one, and crash at the next. Its gRPC server gives the state of a
call to a later one while the callback of the earlier, if that was not decoupled, may still have `complete_ = true` to
write (`StreamInferResponseComplete` in src/grpc/stream_infer_handler.cc, after `WriteResponseIfReady`). Seen once.
"""

import functools
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

Array = npt.NDArray[Any]
Response = dict[str, Array]
SECONDS = 300.0
NAMED = "[request id: "
TRUE = np.ones((1, 1), np.bool_)


@dataclass
class Call:
    """Responses of one request, as they come."""

    request_id: str
    _arrived: "queue.Queue[tuple[Response, bool] | InferenceServerException]" = field(default_factory=queue.Queue)

    def responses(self) -> Iterator[Response]:
        """Responses with outputs, up to the final flag. Raises InferenceServerException for an error."""
        final = False
        while not final:
            item = self._arrived.get(timeout=SECONDS)
            if isinstance(item, InferenceServerException):
                raise item
            response, final = item
            if response:
                yield response

    def tokens(self) -> list[int]:
        """Tokens of all responses."""
        return [token for response in self.responses() for token in response["output_ids"].reshape(-1).tolist()]


class Client:
    """Calls to one server; `open_client` makes one. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._client = triton.InferenceServerClient(url)
        self._client.start_stream(callback=self._receive)
        self._decoupled = functools.cache(self._is_decoupled)
        self._calls: dict[str, Call] = {}
        self._lock = threading.Lock()
        self._count = 0

    def close(self, cancel: bool = False) -> None:
        """End the stream; `cancel`: do not wait for its responses to come."""
        self._client.stop_stream(cancel_requests=cancel)
        self._client.close()

    def send(self, model: str, tensors: dict[str, Array], request_id: str = "", **parameters: bool) -> Call:
        """Start a request with Triton request parameters; all outputs that the model sends are wanted."""
        with self._lock:
            self._count += 1
            call = Call(request_id or f"call-{self._count}")
            self._calls[call.request_id] = call
            inputs = [_input(name, array) for name, array in tensors.items()]
            named = {"request_id": call.request_id, "parameters": parameters or None}
            if self._decoupled(model):
                self._client.async_stream_infer(model, inputs, enable_empty_final_response=True, **named)
            else:
                self._client.async_infer(model, inputs, functools.partial(_receive_only, call), **named)
        return call

    def _is_decoupled(self, model: str) -> bool:
        return bool(self._client.get_model_config(model).config.model_transaction_policy.decoupled)

    def _receive(self, result: Any, error: InferenceServerException | None) -> None:
        if error is not None:
            self._fail(error)
            return
        reply = result.get_response()
        final = reply.parameters["triton_final_response"].bool_param
        self._calls[reply.id]._arrived.put((_outputs(result), final))

    def _fail(self, error: InferenceServerException) -> None:
        """Give the error to its call, or to all where it names none (the stream has ended)."""
        text = str(error.message())
        name, _, message = text.removeprefix(NAMED).partition("] ") if text.startswith(NAMED) else ("", "", text)
        call = self._calls.get(name)
        for each in [call] if call else self._calls.values():
            each._arrived.put(InferenceServerException(message, error.status()))


@contextmanager
def open_client(url: str, leave: bool = False) -> Iterator[Client]:
    """A client for a `with` block. `leave`: go at its end without waiting for responses.

    Not by default: Triton 2.51 keeps what belongs to a stream that was cancelled, and then stops only at its
    exit timeout.
    """
    client = Client(url)
    try:
        yield client
    except BaseException:
        leave = True
        raise
    finally:
        client.close(cancel=leave)


def _receive_only(call: Call, result: Any, error: InferenceServerException | None) -> None:
    call._arrived.put(error if error is not None else (_outputs(result), True))


def _outputs(result: Any) -> Response:
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def inputs(ids: npt.NDArray[np.int32], output_len: int, **more: Any) -> dict[str, Array]:
    """Tensors of one row: the required ones and `more`, scalars given as numbers."""
    tensors: dict[str, Array] = {
        "input_ids": ids[None].astype(np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[output_len]], np.int32),
    }
    for name, value in more.items():
        tensors[name] = value if isinstance(value, np.ndarray) else _scalar(name, value)
    return tensors


def _scalar(name: str, value: Any) -> Array:
    if isinstance(value, bool):
        return np.array([[value]], np.bool_)
    if name == "seed":
        return np.array([[value]], np.uint64)
    return np.array([[value]], np.int32 if isinstance(value, int) else np.float32)


def _input(name: str, array: Array) -> Any:
    made = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made
