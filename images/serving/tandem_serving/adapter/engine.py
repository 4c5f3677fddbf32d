"""Engine calls: Triton models with TensorRT-LLM's tensors, called from inside the server.

Calls are plain `exec()` on threads of ours: `async_exec` is known to fail under concurrency before 26.07. Each
call has a request id of its own and is cancelled as TensorRT-LLM's backend defines it, by a request with the same
id and `stop` set, which every version of Triton can send.

Each call gets one response. An engine that is not decoupled gives it by itself, and clients can call it too. One
that is decoupled answers each row by itself: a call of one row goes to it, a call of several to the model that
collects its rows (`images/serving/collector`). Whole rounds, and what joins them, go to one that makes them in the
server, calls whose tokens are read while they run to one that keeps what the engine streams.

A call holds a row for each sequence: `input_ids` int32[B, n], filled up to the longest (`input_lengths` says
where a row ends), `draft_input_ids` int32[B, k], the rest int32/float32[B, 1]; so does the response:
`output_ids` int32[B, 1, m], `sequence_length` int32[B, 1].
"""

from __future__ import annotations

import contextlib
import itertools
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import inner_calls
from tandem_serving.adapter.response_iterators import responses
from tandem_serving.adapter.triton_errors import plain_error
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import FloatArray, Output, Part, Role, ServerRound
from tandem_serving.bls.request import BlsPrompt, BlsRequest
from tandem_serving.bls.sequence import BlsSequence, EngineInputs
from tandem_serving.errors import EngineError, Survived
from tandem_serving.requests.tensors import Array

_TOKENS = ("output_ids", "sequence_length")
_GROUP = ("round_group", "round_members")
_ROUND = ("round_draft_ids", "round_draft_lengths", "round_draft_ns", "round_target_ns", *_GROUP)
_PARTS = ("stream_number", "stream_start", "stream_length")
_LOG_PROBS, _LOGITS = "output_log_probs", "generation_logits"
PERF_METRICS = (
    *(f"{when}_time_ns" for when in ("arrival", "first_scheduled", "first_token", "last_token")),
    *(f"kv_cache_{what}_blocks" for what in ("alloc_new", "reused", "alloc_total")),
)


def engine_inputs(prompt: BlsPrompt, request: BlsRequest) -> dict[Role, EngineInputs]:
    """A prompt's tensors for both engines, and what `request` wants from the target besides tokens."""
    asked = {_LOG_PROBS: request.log_probs, _LOGITS: request.generation_logits}
    flags = {_LOG_PROBS: "return_log_probs", _LOGITS: "return_generation_logits"}
    outputs = tuple(name for name, wanted in asked.items() if wanted)
    true = np.ones((1, 1), np.bool_)
    more: dict[str, Array] = {**prompt.target_tensors, **{flags[name]: true for name in outputs}}
    if request.perf_metrics:
        more["return_perf_metrics"] = true
        outputs += PERF_METRICS
    always = {**prompt.tensors, "exclude_input_in_output": true}
    draft = always
    if request.use_draft_logits:
        # Without end_id: a draft that ends where it drew its own end would bias what is accepted.
        draft = {name: value for name, value in always.items() if name != "end_id"} | {flags[_LOGITS]: true}
    seeded = prompt.seed is not None
    return {
        "target": EngineInputs({**always, **more}, outputs, seeded),
        "draft": EngineInputs(draft, (_LOGITS,) if request.use_draft_logits else (), seeded),
    }


class EngineModel:
    """A Triton model with TensorRT-LLM's tensors: an `Engine` of the runner.

    `collector` is the model that collects its rows where it is decoupled; "": it is not.
    """

    def __init__(self, name: str, role: Role, collector: str = "") -> None:
        self.name = name
        self._collector = collector
        self.role: Role = role
        self._prefix = f"{role}-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        # Triton adds this class to pb_utils only once the model is initialized.
        self._memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
        self._stops = ThreadPoolExecutor(32, thread_name_prefix=f"stop-{role}")
        self._stopping: set[str] = set()
        self._unstopped = Survived("an engine call could not be stopped")

    lengths = "request_output_len"
    """The tensor that says how many tokens each row wants."""
    more: tuple[str, ...] = ()
    """Outputs besides an engine's."""
    spare: int | None = 0
    """Tokens that an answer may have beyond the longest that was asked for; None: the server checks it."""

    def call(self, rows: Sequence[Row[BlsSequence]]) -> TritonResponses:
        """An engine call with these rows; it starts when it is read."""
        return TritonResponses(self, f"{self._prefix}-{next(self._numbers)}", rows)

    def tensors(self, rows: Sequence[Row[BlsSequence]]) -> dict[str, Array]:
        """A call's inputs besides what comes from its requests."""
        return _tensors(rows)

    def ask(self, tensors: list[Any]) -> None:
        """Make a call of one row, and wait for its answer. Raises EngineError."""
        self.execute(f"{self._prefix}-{next(self._numbers)}", tensors, _TOKENS)

    def execute(self, request_id: str, tensors: list[Any], outputs: Iterable[str], rows: int = 1) -> list[Any]:
        """Make a call of `rows`; its response, alone in a list. Raises EngineError."""
        call = pb_utils.InferenceRequest(
            model_name=self._collector if self._collector and rows > 1 else self.name,
            request_id=request_id,
            requested_output_names=list(outputs),
            inputs=tensors,
            preferred_memory=self._memory,
        )
        try:
            found = list(responses(call)) if self._collector and rows == 1 else [inner_calls.execute(call)]
        except pb_utils.TritonModelException as error:
            raise EngineError(f"{self.role} engine: {error}") from None
        for response in found:
            inner_calls.learn(response)
            if response.has_error():
                raise plain_error(response.error(), self.role)
        return found

    def stop(self, request_id: str) -> None:
        """Ask the engine to end a call, unless it has not answered that yet; returns at once."""
        if request_id not in self._stopping:
            self._stopping.add(request_id)
            self._stops.submit(self._stop, request_id)

    def close(self) -> None:
        """End the threads."""
        self._stops.shutdown(cancel_futures=True)

    def _stop(self, request_id: str) -> None:
        one = np.ones((1, 1), np.int32)
        tensors = [pb_utils.Tensor(name, one) for name in ("input_ids", "input_lengths", "request_output_len")]
        tensors.append(pb_utils.Tensor("stop", np.ones((1, 1), np.bool_)))
        # Whatever the answer says: the call's own response has how it ended.
        with self._unstopped, contextlib.suppress(EngineError):
            self.execute(request_id, tensors, _TOKENS)
        self._stopping.discard(request_id)


class RoundModel(EngineModel):
    """Makes whole rounds of drafts that wait; its answers hold what was drafted, and what the target made of it."""

    lengths = "round_draft_length"
    more = _ROUND
    spare = 1  # the target's own

    def __init__(self, name: str) -> None:
        super().__init__(name, "draft")

    def tensors(self, rows: Sequence[Row[BlsSequence]]) -> dict[str, Array]:
        """With what the server needs to draft ahead."""
        most = [row.sequence.loop.longest_draft for row in rows]
        return {
            **_tensors(rows),
            "round_sequence": np.array([row.sequence.number for row in rows], np.int64)[:, None],
            "round_most": np.array(most, np.int32)[:, None],
        }


class JoinModel(EngineModel):
    """Calls of the target that join a verification of whole rounds, where one is under way."""

    more = _GROUP
    spare = None  # made-up draft tokens may come true


class StreamModel(EngineModel):
    """Calls of the `target` whose tokens are read while it generates them: a `StreamEngine` of the runner."""

    WAIT_MS = 500

    def __init__(self, name: str, target: EngineModel) -> None:
        super().__init__(name, "target")
        self._target = target
        self._caller = np.array([[random.getrandbits(63)]], np.int64)
        arrays = {"stream_caller": self._caller, "stream_wait_ms": np.array([[self.WAIT_MS]], np.int32)}
        self._read = [pb_utils.Tensor(name, array) for name, array in arrays.items()]

    def tensors(self, rows: Sequence[Row[BlsSequence]]) -> dict[str, Array]:
        """With what the server needs to keep its tokens."""
        return {
            **_tensors(rows),
            "streaming": np.ones((1, 1), np.bool_),
            "stream_caller": self._caller,
            "stream_number": np.array([[rows[0].stream]], np.int64),
        }

    def read(self) -> list[Part]:
        """What came of all calls since the last read; waits for it, for WAIT_MS at most. Raises EngineError."""
        request_id = f"{self._prefix}-{next(self._numbers)}"
        [response] = self.execute(request_id, self._read, ("output_ids", *_PARTS))
        found = {tensor.name(): tensor.as_numpy().reshape(-1).tolist() for tensor in response.output_tensors()}
        if not found:
            return []
        ids = iter(found["output_ids"])
        return [
            Part(stream, start, list(itertools.islice(ids, count)))
            for stream, start, count in zip(*(found[name] for name in _PARTS), strict=True)
        ]

    def stop(self, request_id: str) -> None:
        """Ask the engine itself to end a call; returns at once."""
        self._target.stop(request_id)


class TritonResponses:
    """One engine call: the `TritonResponses` of the runner."""

    def __init__(self, model: EngineModel, request_id: str, rows: Sequence[Row[BlsSequence]]) -> None:
        self._model = model
        self._id = request_id
        self._rows = len(rows)
        self._calls = [row.call for row in rows]
        self._outputs = rows[0].sequence.engine_inputs[model.role].outputs
        arrays = _request_tensors(model, rows) | model.tensors(rows)
        self._tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items()]

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        """Outputs with their rows, all at once. Raises EngineError."""
        names = [*_TOKENS, *self._outputs, *self._model.more]
        found = self._model.execute(self._id, self._tensors, names, self._rows)
        arrays = {tensor.name(): tensor.as_numpy() for response in found for tensor in response.output_tensors()}
        outputs = _outputs(arrays, self._rows, self._outputs)
        self._check_lengths(outputs)
        yield outputs

    def _check_lengths(self, outputs: list[tuple[int, Output]]) -> None:
        """Raises EngineError where an answer repeats its input, which would become text."""
        if self._model.spare is None:
            return
        most = max(call.output_len for call in self._calls) + self._model.spare
        for (_, output), call in zip(outputs, self._calls, strict=True):
            count, sent = len(output.ids), call.ids.tolist() if len(output.ids) > most else []
            if sent and output.ids[: len(sent)] == sent:
                raise EngineError(
                    f"the {self._model.role} engine answered {count} tokens where {most} were asked for: "
                    "it must take exclude_input_in_output"
                )

    def stop(self) -> None:
        """Ask the engine to end the call; returns at once."""
        self._model.stop(self._id)


def _request_tensors(model: EngineModel, rows: Sequence[Row[BlsSequence]]) -> dict[str, Array]:
    """What comes from the sequences' requests, and how many tokens each wants."""
    engine_inputs = [row.sequence.engine_inputs[model.role].tensors for row in rows]
    arrays = {name: np.concatenate([tensors[name] for tensors in engine_inputs]) for name in engine_inputs[0]}
    return arrays | {model.lengths: np.array([row.call.output_len for row in rows], np.int32)[:, None]}


def _tensors(rows: Sequence[Row[BlsSequence]]) -> dict[str, Array]:
    """What an engine needs to know of the sequences."""
    calls = [row.call for row in rows]
    lengths = [len(call.ids) for call in calls]
    arrays: dict[str, Array] = {"input_ids": (ids := np.zeros((len(calls), max(lengths)), np.int32))}
    for row, call, length in zip(ids, calls, lengths, strict=True):
        row[:length] = call.ids
    arrays["input_lengths"] = np.array(lengths, np.int32)[:, None]
    if calls[0].draft_ids:
        arrays["draft_input_ids"] = np.array([call.draft_ids for call in calls], np.int32)
    if any(call.min_tokens for call in calls):
        arrays["min_tokens"] = np.array([call.min_tokens for call in calls], np.int32)[:, None]
    if calls[0].seed is not None:
        arrays["seed"] = np.array([call.seed for call in calls], np.uint64)[:, None]
    logits = [call.draft_logits for call in calls if call.draft_logits is not None]
    if logits:
        arrays["draft_logits"] = np.stack(logits)
    return arrays


def _outputs(found: Mapping[str, Array], rows: int, wanted: tuple[str, ...]) -> list[tuple[int, Output]]:
    """The rows of a response. Raises EngineError."""
    ids, lengths = found.get("output_ids"), found.get("sequence_length")
    if ids is None or lengths is None:
        raise EngineError("the engine's response lacks output_ids or sequence_length: check the engine model")
    if len(ids) != rows:
        raise EngineError(f"the engine answered {len(ids)} of {rows} sequences: set max_engine_rows to 1 for it")
    tokens, counts = ids.reshape(rows, -1).tolist(), lengths.reshape(-1).tolist()
    log_probs = found.get(_LOG_PROBS) if _LOG_PROBS in wanted else None
    logits = found.get(_LOGITS) if _LOGITS in wanted else None
    perf_metrics = {name: found[name] for name in PERF_METRICS if name in wanted and name in found}
    drafted, server_round = _drafted(found), _served(found)
    return [
        (
            row,
            Output(
                tokens[row][:count],
                None if log_probs is None else log_probs[row].reshape(-1)[:count].copy(),
                None if logits is None else _logits(logits[row], count),
                {name: int(array[row].reshape(-1)[0]) for name, array in perf_metrics.items()}
                if perf_metrics
                else None,
                drafted[row] if drafted else None,
                server_round,
            ),
        )
        for row, count in enumerate(counts)
    ]


def _drafted(found: Mapping[str, Array]) -> list[list[int]]:
    """What was drafted in a whole round, a row a sequence; none: it was no round."""
    if "round_draft_ids" not in found:
        return []
    ids, counts = found["round_draft_ids"].tolist(), found["round_draft_lengths"].reshape(-1).tolist()
    return [row[:count] for row, count in zip(ids, counts, strict=True)]


def _served(found: Mapping[str, Array]) -> ServerRound | None:
    if "round_group" not in found:
        return None
    draft, target = (found[name].flat[0] * 1e-9 if name in found else 0.0 for name in _ROUND[2:4])
    group, members = (int(found[name].flat[0]) for name in _GROUP)
    return ServerRound(draft, target, group, members, found["round_draft_ids"].shape[1] if _ROUND[0] in found else 0)


def _logits(row: Array, count: int) -> FloatArray:
    """A row's logits without what fills it up behind `count` tokens.

    A handle of fast logits is float32[1, 1, m] here, so it stays whole (there is no handle without a token), and its
    bits, which may be those of a NaN, stay as they are.
    """
    return row.reshape(-1, row.shape[-1])[:count].copy()
