"""A stand-in for both engines: the tensor contract, a made-up model, and faults on demand.

The "model" is a function of the last tokens; the draft's differs at every third position. A request's
seed asks for a fault: see stand_in.py. It stands where the reference engine does not help: when tests
need an engine that fails, hangs or counts, or does what TensorRT-LLM does and the reference engine does not:

- fast logits: the draft's logits are a handle, made from its prompt's tokens, and the target must get it to the bit;
- LoRA: the target's tokens are others, by the adapter's numbers;
- a guide: the target counts from the call's first token, as a grammar starts anew with each call.

The draft refuses the last two.

It takes no time, unless the environment has STAND_IN_STEP_SECONDS: what a step of the target takes, and four of the
draft's.

It streams where it is asked to, and answers each row of a call by itself, as TensorRT-LLM's backend.
What fills a row up is left out where
there are several, and there alone, as there (`splitBatchInputsTensors` in utils.cc). A row that fails fails the call,
as where TensorRT-LLM refuses it before it runs: up to Triton 25.03 a caller in the server never gets the other
responses of a call, where one is an error (docs/design/triton-backend.md), so that one row's error cannot be
tried on 24.10.
"""

import hashlib
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

DRAFT_FAILS, DRAFT_HANGS, TARGET_FAILS, SLOW_TOKENS, TARGET_HANGS = range(1001, 1006)
COUNT_CALLS, IDLE_TIME, COUNT_SEED, COUNT_CALLERS = range(1006, 1010)
AHEAD_HANGS, VERIFICATION_HANGS, COUNT_HUNG, LET_GO, COUNT_AHEAD = range(1011, 1016)
DRAFT_REPEATS, TARGET_REPEATS = 1041, 1042
"""The engine ignores exclude_input_in_output."""
STREAM_BREAKS = 1043
"""A stream fails after some tokens."""
DRAFT_LOST, TARGET_LOST = 1051, 1052
"""That engine never answers, and no stop ends that."""
LOSES_TARGET, LOSES_DRAFT = 2000, 3000
"""With a hundred numbers and a call's number added, 2000 + 100 * i + n: call n with this seed is never answered."""
HANG_SECONDS = 600.0
"""Longer than any client waits: what goes on before has not waited for it."""
SURE_SECONDS = 0.25
"""A call that has hung for so long is counted: by then whoever is to wait for it does."""
SLOW_SECONDS = 0.05
"""Of a slow token: a long call goes on long after a test that has it ended has given up to wait for that."""
FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton
FIRST, LAST = 300, 2000  # ids of whole words in the pair's vocabulary
END_SHARE = 97
LORA, GUIDE = ("lora_task_id", "lora_weights", "lora_config"), "guided_decoding_guide_type"
SIGNALLING_NAN = b"\x01\x00\xa0\x7f"


def handle(ids: Any) -> Any:
    """The handle of fast logits for a prompt's tokens: float32[1, 4] whose bits are no numbers."""
    return np.frombuffer(SIGNALLING_NAN + hashlib.sha256(ids.tobytes()).digest()[:12], np.float32)[None]


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Learn which of the two engines this is."""
        self._draft = "draft" in args["model_name"]
        self._threads = ThreadPoolExecutor(128)
        self._active: set[str] = set()
        self._calls = 0  # that run; a stopped one is not active, and runs until it has noticed
        self._ended = time.monotonic()
        self._seeds: Counter[int] = Counter()  # of all calls that began
        self._callers: set[str] = set()  # an instance of the BLS numbers its calls
        self._hung: dict[str, float] = {}  # since when
        self._let_go = 0  # so many times all that hung was
        self._ahead = 0  # calls of rounds in the server that draft the next round
        self._step = float(os.environ.get("STAND_IN_STEP_SECONDS", "0")) / (4 if self._draft else 1)
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
        told = self._told(int(seeds[0]), int(tensors["input_ids"][0, 0]))
        if told is not None:
            sender.send(_response([[told]]), FINAL)
        elif self._failing in seeds:
            _fail(sender)
        elif self._draft and not tensors.keys().isdisjoint([*LORA, GUIDE]):
            _fail(sender, "the draft has no LoRA and no guides")
        elif "draft_logits" in tensors and _handles(tensors).tobytes() != tensors["draft_logits"].tobytes():
            _fail(sender, "draft_logits are not the handles that the draft gave")
        else:
            self._generate(request.request_id(), tensors, seeds, sender)

    def _told(self, question: int, about: int) -> int | None:
        """What a seed asks for that is a question; LET_GO lets all that hang go on as if it never had."""
        now = time.monotonic()
        with self._lock:
            self._let_go += question == LET_GO
            answers = {
                COUNT_CALLS: self._calls,
                IDLE_TIME: round(1000 * (now - self._ended)),
                COUNT_SEED: self._seeds[about],
                COUNT_CALLERS: len(self._callers),
                COUNT_HUNG: sum(since + SURE_SECONDS < now for since in self._hung.values()),
                LET_GO: self._let_go,
                COUNT_AHEAD: self._ahead,
            }
        return answers.get(question)

    @property
    def _failing(self) -> int:
        return DRAFT_FAILS if self._draft else TARGET_FAILS

    def _generate(self, call_id: str, tensors: dict[str, Any], seeds: list[int], sender: Any) -> None:
        """Each row in a response of its own, the last first."""
        with self._lock:
            self._active.add(call_id)
            self._calls += 1
            self._seeds.update(seeds)
            self._callers.add(call_id.rpartition("-")[0])
            self._ahead += call_id.endswith(".ahead")
            lost = self._lost(seeds)
        if lost:
            return
        if not self._hanging(call_id, tensors).isdisjoint(seeds):
            self._hang(call_id)
        if self._step:
            self._wait(call_id, self._step * _steps(tensors))
        if len(tensors["input_ids"]) == 1:
            tensors["input_lengths"] = np.full((1, 1), tensors["input_ids"].shape[1], np.int32)
        streams = tensors.get("streaming", np.zeros(1)).any()
        rows = [
            self._row(
                call_id,
                {name: value[i : i + 1].reshape(-1) for name, value in tensors.items()},
                sender if streams else None,
            )
            for i in range(len(tensors["input_ids"]))
        ]
        with self._lock:
            self._active.discard(call_id)
            self._calls -= 1
            self._ended = time.monotonic()
        if streams:
            _fail(sender) if STREAM_BREAKS in seeds else sender.send(flags=FINAL)
            return
        wanted = tensors.get("return_generation_logits", np.zeros(1)).any()
        logits = _handles(tensors) if wanted else None
        for i in reversed(range(len(rows))):
            handles = None if logits is None else logits[i : i + 1]
            sender.send(_response(rows[i : i + 1], handles, i if len(rows) > 1 else None), 0 if i else FINAL)

    def _hanging(self, call_id: str, tensors: dict[str, Any]) -> set[int]:
        """The seeds by which this call hangs."""
        always, sometimes = (DRAFT_HANGS, AHEAD_HANGS) if self._draft else (TARGET_HANGS, VERIFICATION_HANGS)
        meant = call_id.endswith(".ahead") if self._draft else "draft_input_ids" in tensors
        return {always, *([sometimes] if meant else [])}

    def _lost(self, seeds: list[int]) -> bool:
        """Whether a call with these seeds is never answered. Under the lock."""
        first = LOSES_DRAFT if self._draft else LOSES_TARGET
        if (DRAFT_LOST if self._draft else TARGET_LOST) in seeds:
            return True
        return any(first < seed < first + 1000 and self._seeds[seed] == seed % 100 for seed in seeds)

    def _hang(self, call_id: str) -> None:
        """Until the call is stopped, or all that hang are let go."""
        since, let_go = time.monotonic(), self._let_go
        with self._lock:
            self._hung[call_id] = since
        while call_id in self._active and self._let_go == let_go and time.monotonic() < since + HANG_SECONDS:
            time.sleep(0.002)
        with self._lock:
            del self._hung[call_id]

    def _wait(self, call_id: str, seconds: float) -> None:
        """For so long, or until the call is stopped."""
        end = time.monotonic() + seconds
        while call_id in self._active and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.002, left))

    def _row(self, call_id: str, tensors: dict[str, Any], sender: Any) -> list[int]:
        """A row's tokens; where there is a `sender`, each in a response."""
        seed = int(tensors.get("seed", [0])[0])
        slow = seed == SLOW_TOKENS and not self._draft
        repeats = seed == (DRAFT_REPEATS if self._draft else TARGET_REPEATS)
        prompt = tensors["input_ids"][: int(tensors["input_lengths"][0])].tolist()
        tokens = []
        for token in self._tokens(prompt[:], tensors):
            if call_id not in self._active:
                break
            if slow:
                time.sleep(SLOW_SECONDS)
            tokens.append(token)
            if sender:
                sender.send(_response([[token]]))
            if sender and seed == STREAM_BREAKS and len(tokens) == 3:
                break
        return tokens if tensors.get("exclude_input_in_output", [False])[0] and not repeats else prompt + tokens

    def _tokens(self, ids: list[int], tensors: dict[str, Any]) -> Any:
        """The call's new tokens; with draft tokens up to the first that the model would not have chosen."""
        drafted = [*tensors.get("draft_input_ids", [])]
        end_id = int(tensors.get("end_id", [-1])[0])
        adapter = int(sum(np.sum(tensors[name], dtype=np.float64) for name in LORA if name in tensors))
        for i in range(int(tensors["request_output_len"][0])):
            token = FIRST + i if GUIDE in tensors else self._next(ids, adapter)
            if token is None and end_id >= 0:
                return
            ids.append(FIRST if token is None else token)
            yield ids[-1]
            if i < len(drafted) and drafted[i] != ids[-1]:
                return

    def _next(self, ids: list[int], adapter: int) -> int | None:
        mixed = sum(token * (7 + 2 * i) for i, token in enumerate(ids[-6:])) + 13 * len(ids)
        if mixed % END_SHARE == 0:
            return None
        wrong = self._draft and len(ids) % 3 == 0
        return FIRST + (mixed * 2654435761 + wrong + adapter) % (LAST - FIRST)


def _steps(tensors: dict[str, Any]) -> int:
    """A verification takes one, all else one a token."""
    return 1 if "draft_input_ids" in tensors else int(np.max(tensors["request_output_len"]))


def _fail(sender: Any, message: str = "the stand-in fails on demand") -> None:
    sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError(message)), FINAL)


def _handles(tensors: dict[str, Any]) -> Any:
    """float32[rows, 1, 1, 4]."""
    lengths = tensors["input_lengths"].reshape(-1)
    return np.stack([handle(row[:length])[None] for row, length in zip(tensors["input_ids"], lengths, strict=True)])


def _response(rows: list[list[int]], logits: Any = None, index: int | None = None) -> Any:
    ids = np.zeros((len(rows), 1, max(map(len, rows))), np.int32)
    for filled, row in zip(ids, rows, strict=True):
        filled[0, : len(row)] = row
    lengths = np.array([[len(row)] for row in rows], np.int32)
    tensors = [pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", lengths)]
    if logits is not None:
        tensors.append(pb_utils.Tensor("generation_logits", logits))
    if index is not None:
        tensors.append(pb_utils.Tensor("batch_index", np.array([[index]], np.int32)))
    return pb_utils.InferenceResponse(tensors)
