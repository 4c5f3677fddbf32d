"""A stand-in for both engines: the tensor contract, a made-up model, and faults on demand.

The "model" is a function of the last tokens; the draft's differs at every third position. A request's
seed asks for a fault: see `FAULTS`. It stands where the reference engine does not help: when tests
need an engine that fails, hangs or counts.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

DRAFT_FAILS, DRAFT_HANGS, TARGET_FAILS, SLOW_TOKENS, COUNT_CALLS, TARGET_HANGS, IDLE_TIME = range(1001, 1008)
HANG_SECONDS = 5.0
FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton
FIRST, LAST = 300, 2000  # ids of whole words in the pair's vocabulary
END_SHARE = 97


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Learn which of the two engines this is."""
        self._draft = args["model_name"].endswith("draft")
        self._threads = ThreadPoolExecutor(128)
        self._active: set[str] = set()
        self._ended = time.monotonic()
        self._lock = threading.Lock()

    def execute(self, requests: list[Any]) -> None:
        """Answer each request on a thread of its own."""
        for request in requests:
            self._threads.submit(self._answer, request, request.get_response_sender())

    def _answer(self, request: Any, sender: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if tensors.get("stop", np.zeros(1)).any():
            with self._lock:
                self._active.discard(request.request_id())
            sender.send(pb_utils.InferenceResponse([]), FINAL)
            return
        seeds = tensors.get("seed", np.zeros(1)).reshape(-1).tolist()
        if seeds[0] == COUNT_CALLS:
            sender.send(_response([[len(self._active)]]), FINAL)
        elif seeds[0] == IDLE_TIME:
            sender.send(_response([[round(1000 * (time.monotonic() - self._ended))]]), FINAL)
        elif (DRAFT_FAILS if self._draft else TARGET_FAILS) in seeds:
            error = pb_utils.TritonError("the stand-in fails on demand")
            sender.send(pb_utils.InferenceResponse([], error), FINAL)
        else:
            self._generate(request.request_id(), tensors, seeds, sender)

    def _generate(self, call_id: str, tensors: dict[str, Any], seeds: list[int], sender: Any) -> None:
        """All rows in one response, as a caller of several rows must ask for."""
        with self._lock:
            self._active.add(call_id)
        if (DRAFT_HANGS if self._draft else TARGET_HANGS) in seeds:
            self._hang(call_id)
        rows = [
            self._row(call_id, {name: value[i : i + 1].reshape(-1) for name, value in tensors.items()})
            for i in range(len(tensors["input_ids"]))
        ]
        with self._lock:
            self._active.discard(call_id)
            self._ended = time.monotonic()
        sender.send(_response(rows), FINAL)

    def _hang(self, call_id: str) -> None:
        """Until the call is stopped."""
        end = time.monotonic() + HANG_SECONDS
        while call_id in self._active and time.monotonic() < end:
            time.sleep(0.002)

    def _row(self, call_id: str, tensors: dict[str, Any]) -> list[int]:
        slow = int(tensors.get("seed", [0])[0]) == SLOW_TOKENS and not self._draft
        prompt = tensors["input_ids"][: int(tensors["input_lengths"][0])].tolist()
        tokens = []
        for token in self._tokens(prompt[:], tensors):
            if call_id not in self._active:
                break
            if slow:
                time.sleep(0.005)
            tokens.append(token)
        return tokens if tensors.get("exclude_input_in_output", [False])[0] else prompt + tokens

    def _tokens(self, ids: list[int], tensors: dict[str, Any]) -> Any:
        """The call's new tokens; with draft tokens up to the first that the model would not have chosen."""
        drafted = [*tensors.get("draft_input_ids", [])]
        end_id = int(tensors.get("end_id", [-1])[0])
        for i in range(int(tensors["request_output_len"][0])):
            token = self._next(ids)
            if token is None and end_id >= 0:
                return
            ids.append(FIRST if token is None else token)
            yield ids[-1]
            if i < len(drafted) and drafted[i] != ids[-1]:
                return

    def _next(self, ids: list[int]) -> int | None:
        mixed = sum(token * (7 + 2 * i) for i, token in enumerate(ids[-6:])) + 13 * len(ids)
        if mixed % END_SHARE == 0:
            return None
        wrong = self._draft and len(ids) % 3 == 0
        return FIRST + (mixed * 2654435761 + wrong) % (LAST - FIRST)


def _response(rows: list[list[int]]) -> Any:
    ids = np.zeros((len(rows), 1, max(map(len, rows))), np.int32)
    for filled, row in zip(ids, rows, strict=True):
        filled[0, : len(row)] = row
    lengths = np.array([[len(row)] for row in rows], np.int32)
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", lengths)]
    )
