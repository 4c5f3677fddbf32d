"""One response for unary clients, made by another, decoupled model: the code of the unary models.

Triton refuses unary calls to decoupled models, and upstream's clients make them. Requests run on threads, as
many as the decoupled model runs at once; those beyond wait here, counted as waiting. Above a bound they are refused,
as are those that wait for longer than `queue_timeout_seconds`. The decoupled model ends a request by itself after
`request_timeout_seconds`; one that it does not answer even then ends here.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import metrics as m
from tandem_serving import threads
from tandem_serving.adapter import entry, inner_calls
from tandem_serving.adapter.metrics_sink import TritonSink
from tandem_serving.adapter.queue import RequestQueue
from tandem_serving.adapter.response_iterators import responses
from tandem_serving.adapter.triton_errors import plain_error, raise_in_band, triton_error
from tandem_serving.errors import (
    FAILED,
    CancelledError,
    EngineError,
    QueueFullError,
    QueueTimeoutError,
    RequestError,
    ServingError,
    Survived,
)
from tandem_serving.parameters import number, queue_timeout
from tandem_serving.requests.request_parameters import ONE_RESPONSE
from tandem_serving.requests.tensors import Array

log = logging.getLogger("tandem.unary")

CANCEL_POLL_SECONDS = 0.1
JITTER_SECONDS = 0.05
WATCH_SECONDS = 0.1
LATER = 10.0
"""Seconds that the decoupled model has to end a request whose time is over."""
# The flag by which clients ask for a stream: upstream's BLS and LLM-API models name it differently.
STREAM = ("stream", "streaming")
STOP = "stop"
NO_ANSWER = "it does not answer in time: send the request again, or to another replica"


class Unary:
    """The class that Triton's Python backend looks for, as `TritonPythonModel`."""

    needed: tuple[str, ...] = ("finish_reason", "text_output")
    """Outputs that are read here, asked for or not."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the name of the decoupled model and the number of requests at once."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        parameters = entry.parameters(args)
        running = int(parameters.get("max_running_sequences") or "64")
        self._running, self._waiting = running, int(parameters.get("max_waiting_sequences") or "1024")
        self._queue_timeout = queue_timeout(parameters)
        self._most_seconds = LATER + number(parameters, "request_timeout_seconds", float, "600", 0.001)
        self._metrics = m.Metrics((m.REFUSED, m.FAULTS))
        self._queue: RequestQueue[Any] = RequestQueue(self._queue_timeout)
        self._count = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._model = parameters["decoupled_model_name"]
        self._batches = int(json.loads(args["model_config"]).get("max_batch_size", 0)) > 0
        self._prefix = f"unary-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._requests = ThreadPoolExecutor(running, thread_name_prefix="request")
        # For each request its call, those that stop it, and one that was never answered.
        self._calls = ThreadPoolExecutor(3 * running, thread_name_prefix="call")
        self._watching = threads.start("watch", self._watch)

    def execute(self, requests: list[Any]) -> None:
        """Start the requests; each is answered from its thread."""
        for request in requests:
            if self._enter():
                begun = self._requests.submit(self._answer, request)
                begun.add_done_callback(self._leave)
                self._queue.add(request, begun, time.monotonic())
                continue
            self._metrics.add(m.REFUSED, 1, m.QUEUE_FULL)
            most = self._running + self._waiting
            _refuse(request, QueueFullError(most, most, 1))

    def finalize(self) -> None:
        """End the threads; the decoupled model ends its own requests. None may call Triton once this returns."""
        self._closed.set()
        with threads.ending():
            self._requests.shutdown(cancel_futures=True)
            self._calls.shutdown(cancel_futures=True)
            self._watching.join()

    def _enter(self) -> bool:
        """Count a request, if there is room for it."""
        with self._lock:
            room = self._count < self._running + self._waiting
            self._count += room
            return room

    def _leave(self, done: Future[None]) -> None:
        with self._lock:
            self._count -= 1
        self._look_at(done)

    def _look_at(self, done: Future[None]) -> None:
        """Log and count work of a thread that broke off."""
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("a request broke off", exc_info=error)
            self._metrics.fault(m.ENDED_REQUEST)

    def _watch(self) -> None:
        sink = TritonSink()
        late, reporting = (
            Survived(f"{what} failed", self._metrics.fault) for what in ("refusing a request", "metrics")
        )
        while not self._closed.wait(WATCH_SECONDS):
            for request, waited in self._queue.late(time.monotonic()):
                with late:
                    self._metrics.add(m.REFUSED, 1, m.QUEUE_TIMEOUT)
                    _refuse(request, QueueTimeoutError(waited, self._queue_timeout))
            with reporting:
                self._metrics.set(m.WAITING, max(0, self._count - self._running))
                self._metrics.flush(sink)

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
        if sender.is_cancelled():  # while it waited
            raise CancelledError("the client cancelled the request")
        inputs = [self._with_row_length(tensor) for tensor in request.inputs()]
        if any(tensor.name() in STREAM and tensor.as_numpy().any() for tensor in inputs):
            raise RequestError(self._no_stream())
        with self._calls_of(request, inputs) as calls:
            outputs = [*{*request.requested_output_names(), *self.needed}]
            named = json.loads(request.parameters() or "{}")  # for the decoupled model to check
            made = [self._call(*call, outputs, named) for call in calls.items()]
            futures = [self._calls.submit(_collect, each) for each in made]
            self._wait(futures, sender, calls, self._bound(inputs))
            return self._together([future.result() for future in futures])

    def _wait(
        self,
        futures: list[Future[dict[str, Array]]],
        sender: Any,
        calls: dict[str, list[Any]],
        late: Callable[[], bool],
    ) -> None:
        """Until all are over; those of a client that is gone, or that are late, are stopped. Raises EngineError."""
        stopping: list[Future[None]] = []
        while wait(futures, CANCEL_POLL_SECONDS).not_done:
            is_late = late()
            if (is_late or sender.is_cancelled()) and not any(stop.running() for stop in stopping):
                # Again while it runs: a stop that overtook the call ended nothing.
                stopping = [self._calls.submit(self._stop, *call) for call in calls.items()]
                # Not in step with others: Triton takes instances in turn, and each of two would get the other's.
                time.sleep(random.uniform(0, JITTER_SECONDS))
            if is_late:
                raise EngineError(f"{self._model}: {NO_ANSWER}", "UNAVAILABLE")

    def _bound(self, inputs: list[Any]) -> Callable[[], bool]:
        """Whether a request that begins now is late, to be asked while it runs."""
        end = time.monotonic() + self._most_seconds
        return lambda: time.monotonic() > end

    def _call(self, call_id: str, inputs: list[Any], outputs: list[str], named: Iterable[str]) -> Any:
        return pb_utils.InferenceRequest(
            model_name=self._model,
            request_id=call_id,
            requested_output_names=outputs,
            inputs=inputs,
            parameters=dict.fromkeys([*named, ONE_RESPONSE], True),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )

    def _no_stream(self) -> str:
        """Why a request that asks for a stream is refused."""
        return f"this model answers once: to stream, call {self._model} with the same tensors"

    @contextmanager
    def _calls_of(self, request: Any, inputs: list[Any]) -> Iterator[dict[str, list[Any]]]:
        """A request's calls while they are under way: id to tensors."""
        yield {self._call_id(): inputs}

    def _call_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def _together(self, answers: list[dict[str, Array]]) -> dict[str, Array]:
        """The answer to a request, from those of its calls."""
        (answer,) = answers
        return answer

    def _stop(self, call_id: str, inputs: list[Any]) -> None:
        """Send the call again with `stop`, which ends it by its id."""
        shape = (1, 1) if self._batches else (1,)
        stop = pb_utils.InferenceRequest(
            model_name=self._model,
            request_id=call_id,
            requested_output_names=["batch_index"],
            inputs=[
                *(tensor for tensor in inputs if tensor.name() != STOP),
                pb_utils.Tensor(STOP, np.ones(shape, np.bool_)),
            ],
        )
        _collect(stop)

    def _with_row_length(self, tensor: Any) -> Any:
        """The tensor as clients send it: with batches, flags come here as [n] and go on as [n, 1]."""
        if not self._batches or len(tensor.shape()) > 1:
            return tensor
        return pb_utils.Tensor(tensor.name(), tensor.as_numpy().reshape(-1, 1))


def _collect(call: Any) -> dict[str, Array]:
    """The tensors of the one response; {} for a call that only stops another. Raises EngineError."""
    row: dict[str, Array] = {}
    try:
        for response in responses(call):
            inner_calls.learn(response)
            if response.has_error():
                raise plain_error(response.error())
            row = row or {tensor.name(): tensor.as_numpy().copy() for tensor in response.output_tensors()}
    except pb_utils.TritonModelException as error:
        raise EngineError(str(error)) from None
    raise_in_band(row)
    return row


def _refuse(request: Any, error: ServingError) -> None:
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    request.get_response_sender().send(_error_response(error), final)


def _error_response(error: ServingError) -> Any:
    return pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))
