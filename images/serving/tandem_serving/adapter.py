"""Between the service and Triton: engine calls, responses, metrics. The only module with `pb_utils`.

Engine calls are plain `exec(decoupled=True)` on threads of ours: `async_exec` is known to fail under
concurrency before 26.07. Each call has a request id of its own and is cancelled as TensorRT-LLM's backend
defines it, by a request with the same id and `stop` set, which every version of Triton can send.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving import checkpoint, forward, metrics
from tandem_serving.chunks import Chunk, Summary
from tandem_serving.control import Abortable, Control
from tandem_serving.errors import EngineError, ServingError
from tandem_serving.loop import Call, Engine, Output
from tandem_serving.request import Array, Limits, Parser, Prompt, Request
from tandem_serving.service import Options, Service
from tandem_serving.settings import Settings
from tandem_serving.tokenizer import Tokenizer

CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "CANCELLED")
ONE_RESPONSE = "one_response"
_TENSORS = ("output_ids", "sequence_length")


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """The string parameters of the model configuration that Triton passes to `initialize`."""
    config = json.loads(args["model_config"])
    return {name: value["string_value"] for name, value in config.get("parameters", {}).items()}


def triton_error(error: ServingError) -> Any:
    """The pb_utils.TritonError for one of ours."""
    return pb_utils.TritonError(str(error), getattr(pb_utils.TritonError, error.code))


class _Recent:
    """Keeps response iterators for a while after their calls.

    Triton's stub drops its own reference on a C++ thread when a call ends. Were that the last one, Python
    objects would be freed there: without the interpreter's lock up to 24.11, which corrupts the heap and
    crashes the model; with it, but in an order that can deadlock, up to 26.06.
    """

    SECONDS = 2.0

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def keep(self, responses: Any) -> None:
        """Keep an iterator and let go of old ones."""
        now = time.monotonic()
        with self._lock:
            self._kept.append((now, responses))
            while self._kept[0][0] < now - self.SECONDS:
                self._kept.popleft()


_recent = _Recent()


def start(call: Any) -> Iterable[Any]:
    """Execute a pb_utils.InferenceRequest of a decoupled model: its responses, as they come."""
    responses: Iterable[Any] = call.exec(decoupled=True)
    _recent.keep(responses)
    return responses


def plain_error(error: Any, role: str = "") -> EngineError:
    """Our error for another model's TritonError: its message without a traceback, its code."""
    names = {getattr(pb_utils.TritonError, name): name for name in CODES}
    message = error.message().split("\n\nAt:")[0].strip()
    return EngineError(f"{role} engine: {message}" if role else message, names.get(error.code(), "INTERNAL"))


def raise_in_band(tensors: Mapping[str, Array]) -> None:
    """Raise the EngineError that a response with `ONE_RESPONSE` holds, if it holds one."""
    code = tensors["finish_reason"][0, 0].decode()
    if code in CODES:
        raise EngineError(tensors["text_output"][0, 0].decode(), code)


class EngineModel:
    """A Triton model with TensorRT-LLM's tensors. Thread-safe."""

    def __init__(self, name: str, role: str) -> None:
        self.name = name
        self.role = role
        self._prefix = f"{role}-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        # Triton adds this class to pb_utils only once the model is initialized.
        self._memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
        self._stops = ThreadPoolExecutor(32, thread_name_prefix=f"stop-{role}")

    def next_id(self) -> str:
        """A request id that no other call has."""
        return f"{self._prefix}-{next(self._numbers)}"

    def execute(self, request_id: str, tensors: list[Any], outputs: Iterable[str]) -> Iterable[Any]:
        """Start a call; returns its responses' iterator. Raises EngineError."""
        call = pb_utils.InferenceRequest(
            model_name=self.name,
            request_id=request_id,
            requested_output_names=list(outputs),
            inputs=tensors,
            preferred_memory=self._memory,
        )
        try:
            return start(call)
        except pb_utils.TritonModelException as error:
            raise EngineError(f"{self.role} engine: {error}") from None

    def stop(self, request_id: str, responses: Iterable[Any] = ()) -> None:
        """Ask the engine to end a call and read `responses` to their end; returns at once.

        An iterator that is not read to its end waits for it where it is freed, at the latest, and for
        ever, when the server shuts down.
        """
        self._stops.submit(self._stop, request_id, responses)

    def close(self) -> None:
        """End the threads."""
        self._stops.shutdown(wait=False, cancel_futures=True)

    def _stop(self, request_id: str, responses: Iterable[Any]) -> None:
        one = np.ones((1, 1), np.int32)
        tensors = [pb_utils.Tensor(name, one) for name in ("input_ids", "input_lengths", "request_output_len")]
        tensors.append(pb_utils.Tensor("stop", np.ones((1, 1), np.bool_)))
        # Whatever the answer says: the call's own responses tell how it ended.
        for _ in itertools.chain(self.execute(request_id, tensors, _TENSORS), responses):
            pass


class BoundEngine:
    """An engine model bound to one sequence: an `Engine` of the loop."""

    def __init__(self, model: EngineModel, tensors: Mapping[str, Array], wants: list[str], control: Control):
        """`tensors` go with every call; `wants` are extra outputs with their `return_…` flags set."""
        self._model = model
        self._control = control
        self._outputs = [*_TENSORS, *wants]
        self._constants = [pb_utils.Tensor(name, value) for name, value in tensors.items()]
        self._constants.append(pb_utils.Tensor("exclude_input_in_output", np.ones((1, 1), np.bool_)))
        self._call_id: str | None = None

    def run(self, call: Call) -> Generator[Output, None, None]:
        """Yield the call's responses. Raises EngineError, or the error that the request was stopped with."""
        model, call_id = self._model, self._model.next_id()
        responses: Iterable[Any] = ()
        ended = False
        with self._control.track(lambda: model.stop(call_id)):
            self._call_id = call_id
            try:
                responses = model.execute(call_id, self._constants + _tensors(call), self._outputs)
                for response in responses:
                    self._control.check()
                    if response.has_error():
                        raise plain_error(response.error(), model.role)
                    if response.output_tensors():
                        yield _output(response)
                ended = True
            finally:
                self._call_id = None
                if not ended:
                    model.stop(call_id, responses)
        self._control.check()

    def abort(self) -> None:
        """Cancel the call in flight."""
        call_id = self._call_id
        if call_id is not None:
            self._model.stop(call_id)


def _tensors(call: Call) -> list[Any]:
    lengths = np.array([[len(call.ids)], [call.output_len], [call.min_tokens]], np.int32)
    tensors = [
        pb_utils.Tensor("input_ids", call.ids[None]),
        pb_utils.Tensor("input_lengths", lengths[0:1]),
        pb_utils.Tensor("request_output_len", lengths[1:2]),
    ]
    if call.draft_ids is not None:
        tensors.append(pb_utils.Tensor("draft_input_ids", call.draft_ids[None]))
    if call.min_tokens:
        tensors.append(pb_utils.Tensor("min_tokens", lengths[2:3]))
    if call.seed is not None:
        tensors.append(pb_utils.Tensor("seed", np.array([[call.seed]], np.uint64)))
    return tensors


def _array(response: Any, name: str) -> Array | None:
    tensor = pb_utils.get_output_tensor_by_name(response, name)
    return None if tensor is None else tensor.as_numpy()


def _output(response: Any) -> Output:
    ids, lengths = _array(response, "output_ids"), _array(response, "sequence_length")
    if ids is None or lengths is None:
        raise EngineError("the engine's response lacks output_ids or sequence_length: check the engine model")
    log_probs, logits = _array(response, "output_log_probs"), _array(response, "generation_logits")
    count = int(lengths.reshape(-1)[0])
    return Output(
        ids.reshape(-1)[:count].tolist(),
        None if log_probs is None else log_probs.reshape(-1)[:count].copy(),
        None if logits is None else logits.reshape(-1, logits.shape[-1])[:count].copy(),
    )


class TritonEngines:
    """Binds the service's two engine models to sequences."""

    def __init__(self, target: EngineModel, draft: EngineModel | None) -> None:
        self._target = target
        self._draft = draft

    def target(self, prompt: Prompt, request: Request, control: Control) -> Engine:
        """The target engine for `prompt`, with the log probs and logits that `request` wants."""
        flags = {"log_probs": request.log_probs, "generation_logits": request.generation_logits}
        wants = {"log_probs": "output_log_probs", "generation_logits": "generation_logits"}
        asked = [name for name, wanted in flags.items() if wanted]
        tensors = dict(prompt.tensors)
        tensors.update({f"return_{name}": np.ones((1, 1), np.bool_) for name in asked})
        return BoundEngine(self._target, tensors, [wants[name] for name in asked], control)

    def draft(self, prompt: Prompt, control: Control) -> Abortable | None:
        """The draft engine for `prompt`, if there is one."""
        return BoundEngine(self._draft, prompt.tensors, [], control) if self._draft else None

    def close(self) -> None:
        """End the threads."""
        for model in filter(None, (self._target, self._draft)):
            model.close()


class TritonResponder:
    """A Triton request's response sender; outputs that the client did not ask for are left out.

    With the request parameter `ONE_RESPONSE`, for `tensorrt_llm_bls`, all prompts come in one response, and
    so does an error: its code as finish_reason, its message as text_output. Triton drops the codes of
    errors between models; why one response: see loop.py.
    """

    def __init__(self, triton_request: Any) -> None:
        self._sender = triton_request.get_response_sender()
        self._wanted = set(triton_request.requested_output_names())
        self._one_response = ONE_RESPONSE in json.loads(triton_request.parameters() or "{}")
        self._rows: list[dict[str, Array]] = []

    def send(self, chunk: Chunk, last: bool) -> None:
        """Send a chunk as [1, ...] tensors."""
        arrays = chunk_tensors(chunk)
        if self._one_response:
            self._rows.append(arrays)
            if not last:
                return
            arrays = forward.merge(self._rows)
        tensors = [
            pb_utils.Tensor(name, value) for name, value in arrays.items() if not self._wanted or name in self._wanted
        ]
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
        self._sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags)

    def fail(self, error: ServingError) -> None:
        """Send an error as the last response."""
        if self._one_response:
            self._rows.clear()
            self.send(Chunk(0, str(error), finish_reason=error.code), last=True)
            return
        response = pb_utils.InferenceResponse(output_tensors=[], error=triton_error(error))
        self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def close(self) -> None:
        """End without a response."""
        self._sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def cancelled(self) -> bool:
        """Whether the client is gone."""
        return bool(self._sender.is_cancelled())


def chunk_tensors(chunk: Chunk) -> dict[str, Array]:
    """A chunk's output tensors by name, batch dimension 1."""
    tensors: dict[str, Array] = {
        "text_output": np.array([[chunk.text.encode()]], np.object_),
        "output_ids": np.array([chunk.ids], np.int32),
        "num_accepted_draft_tokens": _int(chunk.accepted),
        "draft_text_length": _int(chunk.draft_length),
        "finish_reason": np.array([[chunk.finish_reason.encode()]], np.object_),
        "batch_index": _int(chunk.batch_index),
    }
    if chunk.cum_log_prob is not None:
        tensors["cum_log_probs"] = np.array([[chunk.cum_log_prob]], np.float32)
    if chunk.log_probs is not None:
        tensors["output_log_probs"] = chunk.log_probs[None, None]
    if chunk.logits is not None:
        tensors["generation_logits"] = chunk.logits[None, None]
    return tensors | (_summary_tensors(chunk.summary) if chunk.summary else {})


def _summary_tensors(summary: Summary) -> dict[str, Array]:
    return {
        "acceptance_rate": np.array([[summary.acceptance_rate]], np.float32),
        "total_accepted_draft_tokens": _int(summary.accepted_draft_tokens),
        "total_draft_tokens": _int(summary.draft_tokens),
        "num_input_tokens": _int(summary.input_tokens),
        "num_output_tokens": _int(summary.output_tokens),
    }


def _int(value: int) -> Array:
    return np.array([[value]], np.int32)


class TritonSink:
    """Metric families on Triton's metrics port."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, metrics.Labels], Any] = {}

    def add(self, family: metrics.Family, labels: metrics.Labels, value: float) -> None:
        """Add to a counter or gauge. Raises metrics.SinkError."""
        self._do(family, labels, lambda metric: metric.increment(value))

    def observe(self, family: metrics.Family, labels: metrics.Labels, value: float) -> None:
        """Add an observation. Raises metrics.SinkError."""
        self._do(family, labels, lambda metric: metric.observe(value))

    def _do(self, family: metrics.Family, labels: metrics.Labels, action: Callable[[Any], None]) -> None:
        try:
            if (family.name, labels) not in self._metrics:
                self._metrics[family.name, labels] = self._create(family, labels)
            action(self._metrics[family.name, labels])
        except pb_utils.TritonModelException as error:
            raise metrics.SinkError(str(error)) from None

    def _create(self, family: metrics.Family, labels: metrics.Labels) -> Any:
        if family.name not in self._families:
            self._families[family.name] = pb_utils.MetricFamily(
                name=family.name,
                description=family.help,
                kind=getattr(pb_utils.MetricFamily, family.kind.upper()),
            )
        buckets = {"buckets": list(family.buckets)} if family.buckets else {}
        return self._families[family.name].Metric(labels=dict(labels), **buckets)


def tensors_of(triton_request: Any) -> dict[str, Array]:
    """A Triton request's input tensors by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in triton_request.inputs()}


def build_service(config: Settings) -> tuple[Service, TritonEngines]:
    """The service that a model configuration describes. Raises settings and checkpoint errors."""
    tokenizer = Tokenizer(config.tokenizer_dir)
    limits = checkpoint.read_limits(config.target_path)
    draft_limits = checkpoint.read_limits(config.draft_path) if config.draft_path else None
    target = EngineModel(config.target_model, "target")
    draft = EngineModel(config.draft_model, "draft") if draft_limits else None
    engines = TritonEngines(target, draft)
    parser = Parser(tokenizer, Limits(limits.max_sequence_len, config.max_draft_len, limits.vocab_size))
    options = Options(
        request_timeout=config.request_timeout,
        draft_timeout=config.draft_timeout,
        running=config.running,
        waiting=config.waiting,
        draft_limit=draft_limits.max_sequence_len if draft_limits else 0,
        mix_seed=config.mix_seed,
    )
    return Service(parser, tokenizer, engines, options), engines
