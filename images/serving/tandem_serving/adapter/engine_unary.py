"""A decoupled engine for clients that make unary calls: the code of `tensorrt_llm` and `tensorrt_llm_draft`.

What TensorRT-LLM's backend does where it is not decoupled: one response to a request, no streaming, and a request
with `stop` ends those with the same id. Several clients may use the same ids, so each call has an id of its own: who
goes away ends his own calls only. Beyond TensorRT-LLM, a request may hold several sequences.

An engine has no time limit for a request. One ends whose answer is lost: it takes far longer than such requests, and
others were answered that began later.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import threads
from tandem_serving.adapter.merge import merge
from tandem_serving.adapter.unary import LATER, STOP, Unary
from tandem_serving.bls.call_times import CallTimes
from tandem_serving.engine.health import PROMPT_TOKENS
from tandem_serving.errors import FAILED, EngineError
from tandem_serving.requests.tensors import Array

BLS = "speculative_bls"
STOPPING = 4
"""Threads that stop calls."""
LEAST_SECONDS = 60.0
"""That each request has, whatever is known."""


class EngineUnary(Unary):
    """The class that Triton's Python backend looks for, as `TritonPythonModel`."""

    needed = ()

    def initialize(self, args: dict[str, str]) -> None:
        """Read the engine's name and the number of requests at once."""
        super().initialize(args)
        self._times = CallTimes()
        self._answered = -math.inf  # when the latest request began that was answered
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
        (docs/design/triton-backend.md)."""
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

    def _bound(self, inputs: list[Any]) -> Callable[[], bool]:
        began, work, over = time.monotonic(), _work(inputs), super()._bound(inputs)

        def late() -> bool:
            seconds = self._times.late(work)
            lost = seconds is not None and began < self._answered
            return over() or (lost and time.monotonic() > began + max(LEAST_SECONDS, seconds or 0.0))

        return late

    def _run(self, request: Any, sender: Any) -> dict[str, Array]:
        began, inputs = time.monotonic(), request.inputs()
        answer = super()._run(request, sender)
        if answer:  # else it was stopped
            with self._lock:
                self._times.timed(_work(inputs), time.monotonic() - began)
                self._answered = max(self._answered, began)
        return answer

    def _stop_named(self, request: Any) -> None:
        """End what is under way by the request's id, and answer without outputs, as the engine does."""
        error = pb_utils.TritonError(FAILED)
        try:
            with self._lock:
                calls = [*self._under_way.get(request.request_id(), ())] if request.request_id() else []
            inputs = [self._with_row_length(tensor) for tensor in request.inputs()]
            stops = [self._calls.submit(self._stop, call_id, inputs) for call_id in calls]
            for stop in wait(stops, LATER).done:
                stop.result()
            error = None
        except EngineError as raised:
            error = pb_utils.TritonError(str(raised))
        finally:
            response = pb_utils.InferenceResponse(output_tensors=[], error=error)
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _work(inputs: list[Any]) -> float:
    """What a request costs, in steps of the engine: its prompts, and as many as its longest row needs."""
    arrays = {tensor.name(): tensor.as_numpy() for tensor in inputs}
    count = 1 if "draft_input_ids" in arrays else max(1, int(np.max(arrays["request_output_len"])))
    rows = len(arrays["input_ids"])
    return count * (1 + rows / PROMPT_TOKENS) + float(np.sum(arrays["input_lengths"])) / PROMPT_TOKENS


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
