"""A stand-in for the BLS's loop behind a front: clients' requests wait, and what they get is what a director says.

A request's `text_input` is its name, or a director's list of steps (JSON):
  ["wave", CARRIER, [[NAME, CHUNK, LAST], ...]]: a wave, by way of an open request; CHUNK: fields of chunks.Chunk
  ["raw", CARRIER, NUMBERS, TEXT]: what may be no wave
  ["plain", NAME, {OUTPUT: [TYPE, VALUE]}, LAST], ["error", NAME, CODE, MESSAGE], ["close", NAME]
  ["forget", NAME]: another may take the name
A director is answered at the end: with the names of those that wait, and whether each one's client has left, by the
front's own word, where its last step is ["gone"].
"""

import json
import threading
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import packing
from tandem_serving.bls.chunks import BlsChunk, BlsSummary

FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Nobody waits yet."""
        self._waiting: dict[str, tuple[int, Any]] = {}
        self._clients = args["model_name"].replace("_loop", "_clients")

    def execute(self, requests: list[Any]) -> None:
        """Keep the requests, or do what a director says, on a thread of its own."""
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            text, sender = tensors["text_input"].flat[0].decode(), request.get_response_sender()
            if text.startswith("["):
                threading.Thread(target=self._direct, args=(json.loads(text), sender)).start()
            else:
                self._waiting[text] = int(tensors["ticket"].flat[0]), sender

    def _direct(self, steps: list[Any], sender: Any) -> None:
        answer = ""
        try:
            for what, *how in steps:
                if what == "gone":
                    answer = json.dumps(self._gone())
                else:
                    getattr(self, f"_{what}")(*how)
            sender.send(pb_utils.InferenceResponse([_tensor("text_output", "object", [answer])]), FINAL)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says so
            sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError(repr(error))), FINAL)

    def _wave(self, carrier: str, pieces: list[Any]) -> None:
        self._send_packed(carrier, packing.pack([(self._waiting[n][0], _chunk(c), last) for n, c, last in pieces]))

    def _raw(self, carrier: str, numbers: list[int], text: str) -> None:
        packed = packing.Packed(np.array(numbers, np.int64), np.frombuffer(text.encode(), np.uint8))
        self._send_packed(carrier, packed)

    def _send_packed(self, carrier: str, packed: packing.Packed) -> None:
        tensors = [pb_utils.Tensor("wave", packed.numbers), pb_utils.Tensor("wave_text", packed.text)]
        self._waiting[carrier][1].send(pb_utils.InferenceResponse(tensors))

    def _plain(self, name: str, outputs: dict[str, Any], last: bool) -> None:
        tensors = [_tensor(output, *value) for output, value in outputs.items()]
        self._waiting[name][1].send(pb_utils.InferenceResponse(tensors), FINAL if last else 0)

    def _error(self, name: str, code: str, message: str) -> None:
        error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
        self._waiting[name][1].send(pb_utils.InferenceResponse([], error), FINAL)

    def _close(self, name: str) -> None:
        self._waiting[name][1].send(flags=FINAL)

    def _forget(self, name: str) -> None:
        del self._waiting[name]

    def _gone(self) -> dict[str, bool]:
        waiting = dict(self._waiting)
        tickets = np.array([ticket for ticket, _ in waiting.values()], np.int64)
        call = pb_utils.InferenceRequest(
            model_name=self._clients,
            requested_output_names=["gone"],
            inputs=[pb_utils.Tensor("tickets", tickets)],
        )
        response = call.exec()
        if response.has_error():
            raise RuntimeError(response.error().message())
        return dict(zip(waiting, response.output_tensors()[0].as_numpy().tolist(), strict=True))


def _chunk(fields: dict[str, Any]) -> BlsChunk:
    summary = {"summary": BlsSummary(*fields["summary"])} if "summary" in fields else {}
    return BlsChunk(0, "", [])._replace(**(fields | summary))


def _tensor(name: str, kind: str, value: Any) -> Any:
    if kind == "object":
        return pb_utils.Tensor(name, np.array([text.encode() for text in value], np.object_))
    return pb_utils.Tensor(name, np.array(value, kind))
