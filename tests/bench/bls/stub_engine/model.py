"""A stub for both engines of the benchmark: TensorRT-LLM's tensors, a cost model's times, made-up tokens.

It takes requests of one or more rows: `draft_input_ids` makes them verifications; `stop` ends the calls
with the same request id. It is not decoupled, as the engines of the operator: all rows of a request come in
one response, and there is no streaming. The prompt is never repeated. Sampling parameters are taken and mean
nothing here.

One thread runs the steps. They begin and end at the cost model's times to the microsecond: a step begins
when the one before it ended, or when its first request came, not when this process had time for it.
"""

import ctypes
import json
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from bench.bls.device import Device, Meter
from bench.bls.in_flight import Call, Costs, InFlight
from bench.bls.stub_calls import Work, WorkMaker

FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton
PR_SET_TIMERSLACK = 29
ADMISSION_SECONDS = 1e-4  # after a step's end: what an engine needs itself to look for new requests


@dataclass(slots=True, eq=False, kw_only=True)
class Request(Call):
    """A call with its answers and where they go."""

    work: Work
    sender: Any
    request_id: str
    arrived: float


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the cost model from the configuration and start the engine's thread."""
        sys.setswitchinterval(1e-4)  # the engine's thread must not wait for requests that are being read
        config = json.loads(args["model_config"])
        given = {key: value["string_value"] for key, value in config["parameters"].items()}
        self._engine: InFlight[Request] = InFlight(Costs(**json.loads(given["costs"].replace("'", '"'))))
        self._maker = WorkMaker(given["role"] == "draft", [float(a) for a in given["acceptance"].split(",")])
        self._device = Device(given["device"])
        self._meter = Meter(given["meter"])
        self._arrivals: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []
        self._stopped: set[str] = set()
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Queue the requests for the engine's thread."""
        arrived = time.monotonic()
        for request in requests:
            made = self._parse(request, arrived)
            if made is not None:
                self._arrivals.put(made)

    def finalize(self) -> None:
        """End the engine's thread."""
        self._arrivals.put(None)
        self._thread.join()

    def _parse(self, request: Any, arrived: float) -> Request | None:
        sender = request.get_response_sender()
        if _flag(request, "stop"):
            self._stopped.add(request.request_id())
            sender.send(pb_utils.InferenceResponse([]), FINAL)
            return None
        names = ("input_ids", "input_lengths", "request_output_len", "draft_input_ids")
        ids, lengths, output_lens, drafted = (_array(request, name) for name in names)
        try:
            work = self._maker.work(ids, lengths.reshape(-1), output_lens.reshape(-1), drafted)
        except ValueError as error:
            sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError(str(error))), FINAL)
            return None
        return Request(
            rows=work.rows,
            draft_tokens=work.draft_tokens,
            work=work,
            sender=sender,
            request_id=request.request_id(),
            arrived=arrived,
        )

    def _serve(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        end = 0.0
        while self._fetch():
            begin = end if self._engine.active else max(end, self._waiting[0].arrived)
            self._admit(begin + ADMISSION_SECONDS)
            seconds = self._engine.begin()
            end = self._device.reserve(begin, seconds)
            answers = [(request.sender, _answer(request)) for request in self._engine.active if _last_step(request)]
            time.sleep(max(0.0, end - time.monotonic()))
            for sender, response in answers:
                sender.send(response, FINAL)
            self._meter.add(seconds)
            for request in self._engine.end():
                if request.done:
                    self._maker.store(request.work)
            if self._stopped:
                self._drop()

    def _fetch(self) -> bool:
        """Take what has come; wait for it while there is nothing to do. False: the model ends."""
        idle = not self._engine.active and not self._waiting
        while idle or not self._arrivals.empty():
            request = self._arrivals.get()
            if request is None:
                return False
            self._waiting.append(request)
            idle = False
        return True

    def _admit(self, until: float) -> None:
        late = []
        for request in self._waiting:
            if request.arrived > until:
                late.append(request)
            else:
                request.prefill = self._maker.prefill(request.work)
                self._engine.admit(request)
        self._waiting = late

    def _drop(self) -> None:
        """End the calls that were asked to stop; ids of calls that were already over are forgotten."""
        stopped, self._stopped = self._stopped, set()
        for request in [*self._engine.active, *self._waiting]:
            if request.request_id in stopped:
                request.sender.send(pb_utils.InferenceResponse([]), FINAL)
                (self._engine.active if request in self._engine.active else self._waiting).remove(request)


def _last_step(request: Request) -> bool:
    """Whether the step that begins now makes the request's answer ready."""
    return request.steps + 1 == len(request.rows)


def _answer(request: Request) -> Any:
    """All rows, cut to the longest."""
    work = request.work
    ids = np.ascontiguousarray(work.ids[:, None, : int(work.counts.max())])
    lengths = np.ascontiguousarray(work.counts[:, None], np.int32)
    tensors = [pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", lengths)]
    return pb_utils.InferenceResponse(tensors)


def _array(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def _flag(request: Any, name: str) -> bool:
    value = _array(request, name)
    return value is not None and bool(value.any())
