"""Triton entry of the reference engine: tensors of TensorRT-LLM's `tensorrt_llm` model, decoupled or not.

Serves as `tensorrt_llm` and as `tensorrt_llm_draft`. Parameters of config.pbtxt: the fields of
`reference_engine.engine.Settings`, and TensorRT-LLM's `cancellation_check_period_ms` and `exclude_input_in_output`.

Not decoupled, it gives each request one response, with all its rows (see `reference_engine.responses`), when
the last of them has ended, and refuses streaming, as TensorRT-LLM does. Beyond TensorRT-LLM: several rows go
there too, and decoupled, a request whose Triton parameter `one_response` is true is answered in the same way.
"""

import json
import logging
import sys
import threading
import time
from collections import deque
from functools import partial
from typing import Any

import reference_engine  # sets up OpenBLAS: before pb_utils, which loads numpy

# isort: split
import triton_python_backend_utils as pb_utils

from reference_engine import engine, responses, statistics, tensors
from reference_engine.delivery import Delivery, Lane, at_once
from reference_engine.request import Finish, Output, RequestError

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
log = logging.getLogger(reference_engine.__name__)
# Why a request cannot stream, by whether the model is decoupled.
_NO_STREAM = {
    True: "one_response is true, but streaming is too: leave one of them out",
    False: "streaming is not possible here: this model is not decoupled and answers a request once; leave it out, "
    "or stream from speculative_bls",
}


class Exchange:
    """One Triton request: its rows in the engine, its responses. Outputs come on the engine's thread, which sends
    a row's only one, and leaves streams to `delivery`."""

    def __init__(self, request: Any, decoupled: bool, delivery: Delivery) -> None:
        self.request_id: str = request.request_id()
        self.calls: list[engine.Call] = []
        self.closed = False
        self.cancelled = False
        self._sending = threading.Lock()
        self._sender = request.get_response_sender()
        self._wanted = set(request.requested_output_names())
        self._decoupled = decoupled
        self._together = not decoupled or bool(json.loads(request.parameters() or "{}").get("one_response"))
        self._open_rows = self._unsent_rows = 0
        self._outputs: deque[tuple[int, Output]] = deque()
        self._handed = False  # to the lane, for `_send`
        self._delivery = delivery
        self._lane: Lane = at_once

    def start(self, rows: list[tensors.Row], runner: engine.Engine) -> None:
        """Submit all rows. Raises RequestError with no row started, and EngineStopped."""
        if any(row.request.streaming for row in rows):
            if self._together:
                raise RequestError(_NO_STREAM[self._decoupled])
            self._lane = self._delivery.lane()
        self._answers = responses.Together(rows) if self._together else responses.EachRow(rows)
        self._open_rows = self._unsent_rows = len(rows)
        self.calls = runner.submit_all((row.request, partial(self._sink, i)) for i, row in enumerate(rows))

    def _sink(self, index: int, output: Output) -> None:
        if self.closed:
            return
        if output.finish == Finish.CANCELLED:
            self.fail("the request was cancelled", pb_utils.TritonError.CANCELLED)
        elif output.finish == Finish.ERROR:
            self.fail(output.error, pb_utils.TritonError.UNAVAILABLE)
        else:
            self._open_rows -= bool(output.finish)
            self.closed = self._open_rows == 0
            self._outputs.append((index, output))
            if not self._handed:
                self._handed = True
                self._lane(self._send)

    def _send(self) -> None:
        """Send what there is: a row's outputs as one."""
        self._handed = False
        taken: dict[int, Output] = {}
        while self._outputs:
            index, output = self._outputs.popleft()
            taken[index] = taken[index].then(output) if index in taken else output
        for index, output in taken.items():
            self._unsent_rows -= bool(output.finish)
            arrays = self._answers.add(index, output)
            if arrays is not None:
                wanted = {name: array for name, array in arrays.items() if not self._wanted or name in self._wanted}
                self._respond(wanted, 0 if self._unsent_rows else FINAL)

    def fail(self, message: str, code: int) -> None:
        """End the request with an error."""
        self.closed = True
        error = pb_utils.TritonError(message, code)
        self._lane(partial(self._respond, {}, FINAL, error))

    def acknowledge(self) -> None:
        """End the request without outputs: without any response where the model is decoupled."""
        self.closed = True
        if not self._decoupled:
            self._lane(partial(self._respond, {}, FINAL))
            return
        with self._sending:
            self._sender.send(flags=FINAL)

    def _respond(self, arrays: dict[str, tensors.Array], flags: int, error: Any = None) -> None:
        """A client that is gone must not stop the engine's thread."""
        outputs = [pb_utils.Tensor(name, array) for name, array in arrays.items()]
        try:
            with self._sending:
                self._sender.send(pb_utils.InferenceResponse(output_tensors=outputs, error=error), flags)
        except pb_utils.TritonModelException as error:
            log.warning("request %s: response not sent: %s", self.request_id, error)

    def abandoned(self) -> bool:
        """Whether the client has cancelled or is gone.

        Never asked after the final response: Triton has freed the request then, and would crash.
        """
        with self._sending:
            return not self.closed and bool(self._sender.is_cancelled())


class Gauges:
    """The engine's state on Triton's metrics port, as TensorRT-LLM's backend has it there."""

    def __init__(self, model: str, version: str) -> None:
        self._of_model = {"model": model, "version": version}
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, str], Any] = {}
        self._set: dict[tuple[str, str], float] = {}
        self._refused = False

    def update(self, state: statistics.Statistics) -> None:
        """Set what has changed: each is a call of the server. One that refuses is not asked again."""
        try:
            for key, value in statistics.gauges(state).items():
                if self._set.get(key) != value and not self._refused:
                    self._metric(*key).set(value)
                    self._set[key] = value
        except pb_utils.TritonModelException as error:
            self._refused = True
            log.warning("metrics cannot be reported: %s; requests are not affected", error)

    def _metric(self, family: str, kind: str) -> Any:
        label, description = statistics.FAMILIES[family]
        if family not in self._families:
            gauge = pb_utils.MetricFamily.GAUGE
            self._families[family] = pb_utils.MetricFamily(name=family, description=description, kind=gauge)
        if (family, kind) not in self._metrics:
            self._metrics[family, kind] = self._families[family].Metric(labels={**self._of_model, label: kind})
        return self._metrics[family, kind]


SWITCH_SECONDS = 0.0002  # the engine's thread must not wait 5 ms for the interpreter's lock
CLOSE_SECONDS = 5.0  # for a thread to end in


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the checkpoint, start the engine and the watch for cancelled requests and metrics."""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        sys.setswitchinterval(SWITCH_SECONDS)
        config = json.loads(args["model_config"])
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        settings = engine.Settings.parse(parameters)
        started = time.monotonic()
        self._engine = engine.Engine(engine.load(settings))
        log.info("%s: %s loaded in %.1f s", args["model_name"], settings.model_path, time.monotonic() - started)
        self._period = int(parameters.get("cancellation_check_period_ms") or 100) / 1000
        self._exclude_input = parameters.get("exclude_input_in_output", "").lower() in ("true", "1")
        self._gauges = Gauges(args["model_name"], args["model_version"])
        self._exchanges: list[Exchange] = []
        self._delivery = Delivery()
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watching.start()

    def execute(self, requests: list[Any]) -> None:
        """Start the requests; their responses come from the engine's thread."""
        for request in requests:
            exchange = Exchange(request, self._decoupled, self._delivery)
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            if "stop" in inputs and inputs["stop"].any():
                self._stop(exchange.request_id)
                exchange.acknowledge()
            else:
                self._start(exchange, inputs)

    def _start(self, exchange: Exchange, inputs: dict[str, tensors.Array]) -> None:
        with self._lock:
            self._exchanges.append(exchange)
        try:
            exchange.start(tensors.parse(inputs, self._exclude_input), self._engine)
        except RequestError as error:
            exchange.fail(str(error), pb_utils.TritonError.INVALID_ARG)
        except engine.EngineStopped as error:
            exchange.fail(str(error), pb_utils.TritonError.UNAVAILABLE)
        except Exception:  # else Triton ends the request, and `abandoned` would ask for one that it has freed
            log.exception("request %r could not be started", exchange.request_id)
            exchange.fail("the engine failed at this request; its log says why", pb_utils.TritonError.INTERNAL)

    def _stop(self, request_id: str) -> None:
        for exchange in self._open_exchanges():
            if exchange.request_id == request_id:
                self._cancel(exchange)

    def _cancel(self, exchange: Exchange) -> None:
        exchange.cancelled = bool(exchange.calls)
        for call in exchange.calls:
            self._engine.cancel(call)

    def _open_exchanges(self) -> list[Exchange]:
        with self._lock:
            self._exchanges = [each for each in self._exchanges if not each.closed]
            return list(self._exchanges)

    def _watch(self) -> None:
        """Cancel what clients have given up, so that its place goes to others; tell the engine's state."""
        while not self._finished.wait(self._period):
            try:
                self._look()
            except Exception:  # whatever it is: of others that are given up it must still hear
                log.exception("the watch for cancelled requests failed; it goes on")

    def _look(self) -> None:
        self._gauges.update(self._engine.statistics)
        for exchange in self._open_exchanges():
            if not exchange.cancelled and exchange.abandoned():
                log.info("request %r was given up by its client", exchange.request_id)
                self._cancel(exchange)

    def finalize(self) -> None:
        """End all requests and threads."""
        self._finished.set()
        self._watching.join(CLOSE_SECONDS)
        self._engine.close()
        self._delivery.close(CLOSE_SECONDS)
