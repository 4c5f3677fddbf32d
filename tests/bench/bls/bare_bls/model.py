"""The least that a speculative BLS in Python does on Triton: what no such model can do better, for comparison.

It takes the place of the speculative BLS in the benchmark and knows nothing but the benchmark's requests: greedy,
one prompt, streamed, every prompt's draft as long as the first one's. One thread runs all sequences in lock-step: a
round is one call, which the server makes by itself, and a response to each client, with a text that is not its own.
No queue, stop words, texts, counters, cancelling or faults; a failure ends it.
"""

import itertools
import json
import queue
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter.bls_response import BlsResponder
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.bls.loop import FINISH_LENGTH
from tandem_serving.requests.tokenizer import Tokenizer

OUTPUTS = ["output_ids", "sequence_length", "round_draft_ids", "round_draft_lengths"]


@dataclass(slots=True, eq=False)
class Sequence:
    """A request: its number, its tokens so far, how many there will be, and where they go."""

    number: int
    ids: list[int]
    end: int
    draft_len: int
    responder: BlsResponder

    @property
    def left(self) -> int:
        """Tokens that are still to come."""
        return self.end - len(self.ids)


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Start the thread of the rounds."""
        sys.setswitchinterval(0.0002)
        parameters = json.loads(args["model_config"])["parameters"]
        self._tokenizer = Tokenizer(Path(parameters["tokenizer_dir"]["string_value"]))
        self._rounds = parameters["tensorrt_llm_rounds_name"]["string_value"]
        self._numbers = itertools.count()
        self._arrivals: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="rounds", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Hand the requests to the thread of the rounds."""
        for request in requests:
            ids = self._tokenizer.encode(_input(request, "text_input").decode())
            end = len(ids) + int(_input(request, "max_tokens"))
            draft_len = int(_input(request, "num_draft_tokens"))
            self._arrivals.put(Sequence(next(self._numbers), ids, end, draft_len, BlsResponder(request)))

    def finalize(self) -> None:
        """End the thread."""
        self._arrivals.put(None)
        self._thread.join()

    def _serve(self) -> None:
        running: list[Sequence] = []
        while True:
            while not running or not self._arrivals.empty():
                arrived = self._arrivals.get()
                if arrived is None:
                    return
                running.append(arrived)
            _send(running, self._round(running))
            running = [sequence for sequence in running if sequence.left]

    def _round(self, sequences: list[Sequence]) -> list[list[int]]:
        """Draft and verify: each sequence's new tokens."""
        lengths = _column([len(sequence.ids) for sequence in sequences])
        ids = np.zeros((len(sequences), lengths.max()), np.int32)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence.ids)] = sequence.ids
        most = [sequence.left - 1 for sequence in sequences]
        inputs = {
            "input_ids": ids,
            "input_lengths": lengths,
            "round_sequence": _column([sequence.number for sequence in sequences], np.int64),
            "round_draft_length": _column([min(sequences[0].draft_len, each) for each in most]),
            "round_most": _column(most),
        }
        response = pb_utils.InferenceRequest(
            model_name=self._rounds,
            requested_output_names=OUTPUTS,
            inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        ).exec()
        if response.has_error():
            raise RuntimeError(response.error().message())
        found = (pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in OUTPUTS[:2])
        tokens, counts = (array.reshape(len(sequences), -1).tolist() for array in found)
        return [row[: min(count, each.left)] for row, (count,), each in zip(tokens, counts, sequences, strict=True)]


def _send(sequences: list[Sequence], answers: list[list[int]]) -> None:
    for sequence, tokens in zip(sequences, answers, strict=True):
        sequence.ids += tokens
        finish = "" if sequence.left else FINISH_LENGTH
        chunk = BlsChunk(0, "text of a step", tokens, finish_reason=finish)
        sequence.responder.send(chunk, last=not sequence.left)


def _column(values: list[int], dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)[:, None]


def _input(request: Any, name: str) -> Any:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
