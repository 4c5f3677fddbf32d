"""Clients behind the front: their chunks leave many in one response, and which of them have left is asked for all at
once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import inner_calls, packing
from tandem_serving.adapter.bls_response import BlsResponder
from tandem_serving.adapter.responder import TICKET
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.errors import Survived
from tandem_serving.requests.active import UnpackedError

# The front ends some requests a second after their clients have left, when it is asked: so it is for a while.
ASK_SECONDS = 2.0
LOOK_SECONDS = 0.1
# The low bits of a ticket number it, the others are the same in all that the front gives out, and a secret: who calls
# this model himself must not be given others' chunks to carry. See images/serving/front/client.h.
NUMBER_BITS = 24


class Front:
    """The front's clients whose requests are not over. `model` reports which of them have left. Thread-safe."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._open: dict[int, FrontResponder] = {}
        self._until = 0.0
        self._closed = threading.Event()
        self._secret: int | None = None

    def responder(self, triton_request: Any) -> BlsResponder:
        """What answers a request: it has a ticket, or comes from elsewhere."""
        ticket = pb_utils.get_input_tensor_by_name(triton_request, TICKET)
        if ticket is None:
            return BlsResponder(triton_request)
        made = FrontResponder(triton_request, int(ticket.as_numpy().flat[0]), self)
        self._open[made.ticket] = made
        return made

    def gave(self, ticket: int) -> bool:
        """Whether the front gave out this ticket, by the one that it knew first."""
        return ticket >> NUMBER_BITS == self._secret

    def closed(self, responder: FrontResponder) -> None:
        """A request is over."""
        self._open.pop(responder.ticket, None)
        self._until = time.monotonic() + ASK_SECONDS  # it may have begun since the latest look

    def watch(self, left: Callable[[], None]) -> None:
        """Find out which clients have left, until `close` or the server's end, and say so by `left`.

        Run on a thread of its own: the question goes through Triton, and deadlines must not wait for that.
        """
        unknown = Survived("it is not known which clients are gone")
        while not self._closed.wait(LOOK_SECONDS):
            with unknown:
                try:
                    gone = self._look()
                except inner_calls.ServerEndsError:
                    return
                if gone:
                    left()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _look(self) -> bool:
        """Whether any client has left."""
        waiting, now = dict(self._open), time.monotonic()
        if waiting:
            self._until = now + ASK_SECONDS
        if now > self._until:
            return False
        tickets = np.fromiter(waiting, np.int64, len(waiting))
        call = pb_utils.InferenceRequest(
            model_name=self._model,
            requested_output_names=["gone"],
            inputs=[pb_utils.Tensor("tickets", tickets)],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = inner_calls.execute(call)
        inner_calls.learn(response)
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        (gone,) = response.output_tensors()
        for responder, left in zip(waiting.values(), gone.as_numpy().tolist(), strict=True):
            responder.gone = left
            if not left:
                self._secret = responder.ticket >> NUMBER_BITS
        return any(responder.gone for responder in waiting.values())


class FrontResponder(BlsResponder):
    """A request of the front's."""

    def __init__(self, triton_request: Any, ticket: int, front: Front) -> None:
        super().__init__(triton_request)
        self.ticket = ticket
        self.gone = False
        self._front = front

    def cancelled(self) -> bool:
        """Whether the client was gone at the latest look."""
        return self.gone

    def batch_sender(self, chunk: BlsChunk) -> FrontResponder | None:
        """This request, where a chunk can leave with those of others, and they with it."""
        return self if self._front.gave(self.ticket) and packing.fits(chunk) else None

    def send_batch(self, batch: Sequence[tuple[FrontResponder, BlsChunk, bool]]) -> None:
        """Send chunks of many requests, with this request, which is open. Raises UnpackedError."""
        try:
            packed = packing.pack((responder.ticket, chunk, last) for responder, chunk, last in batch)
        except Exception as error:  # whatever is wrong with a chunk
            raise UnpackedError from error
        tensors = [pb_utils.Tensor("wave", packed.numbers), pb_utils.Tensor("wave_text", packed.text)]
        self._send(pb_utils.InferenceResponse(tensors), last=False)

    def close(self) -> None:
        """End without a response."""
        self._front.closed(self)
        super().close()

    def _send(self, response: Any, last: bool) -> None:
        if last:
            self._front.closed(self)
        super()._send(response, last)
