"""The least that a speculative BLS in Python does on Triton: what no such model can do better, for comparison.

It takes the place of the speculative BLS in the benchmark and knows nothing but the benchmark's requests: greedy,
one prompt, streamed, every prompt's draft as long as the first one's. One thread runs all sequences in lock-step: one
engine call for all drafts, one for all verifications, one response a sequence with a text that is not theirs.
No queue, stop words, texts, counters, cancelling or faults; a failure ends it.
"""

import json
import queue
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.tokenizer import Tokenizer

OUTPUTS = ["output_ids", "sequence_length"]
FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton
TEXT = np.array([[b"text of a step"]], np.object_)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request: its tokens so far, how many there will be, and where they go."""

    ids: list[int]
    end: int
    draft_len: int
    sender: Any


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Start the thread of the rounds."""
        sys.setswitchinterval(0.0002)
        parameters = json.loads(args["model_config"])["parameters"]
        self._tokenizer = Tokenizer(Path(parameters["tokenizer_dir"]["string_value"]))
        self._arrivals: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="rounds", daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Hand the requests to the thread of the rounds."""
        for request in requests:
            ids = self._tokenizer.encode(_input(request, "text_input").decode())
            end = len(ids) + int(_input(request, "max_tokens"))
            draft_len = int(_input(request, "num_draft_tokens"))
            self._arrivals.put(Sequence(ids, end, draft_len, request.get_response_sender()))

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
            for sequence, tokens in zip(running, self._round(running), strict=True):
                _send(sequence, tokens)
            running = [sequence for sequence in running if len(sequence.ids) < sequence.end]

    def _round(self, sequences: list[Sequence]) -> list[list[int]]:
        """Draft and verify: each sequence's new tokens."""
        lengths = np.array([[len(sequence.ids)] for sequence in sequences], np.int32)
        ids = np.zeros((len(sequences), lengths.max()), np.int32)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence.ids)] = sequence.ids
        tensors = [pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("input_lengths", lengths)]
        # As long as anybody has use for.
        k = min(sequences[0].draft_len, max(sequence.end - len(sequence.ids) for sequence in sequences) - 1)
        drafted = []
        if k > 0:
            tokens, _ = self._call("tensorrt_llm_draft", tensors, np.full_like(lengths, k))
            drafted = [pb_utils.Tensor("draft_input_ids", tokens)]
        tokens, counts = self._call("tensorrt_llm", [*tensors, *drafted], np.full_like(lengths, k + 1))
        return [
            row[: min(count, sequence.end - len(sequence.ids))]
            for row, count, sequence in zip(tokens.tolist(), counts, sequences, strict=True)
        ]

    def _call(self, model: str, tensors: list[Any], output_lens: Any) -> tuple[Any, list[int]]:
        """Tokens int32[B, n] of an engine call, and how many there are of each row."""
        response = pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=OUTPUTS,
            inputs=[*tensors, pb_utils.Tensor("request_output_len", output_lens)],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        ).exec()
        if response.has_error():
            raise RuntimeError(response.error().message())
        tokens, counts = (
            pb_utils.get_output_tensor_by_name(response, name).as_numpy()
            for name in ("output_ids", "sequence_length")
        )
        return tokens.reshape(len(tokens), -1), counts.reshape(-1).tolist()


def _send(sequence: Sequence, tokens: list[int]) -> None:
    sequence.ids += tokens
    made = [pb_utils.Tensor("text_output", TEXT), pb_utils.Tensor("output_ids", np.array([tokens], np.int32))]
    over = len(sequence.ids) == sequence.end
    sequence.sender.send(pb_utils.InferenceResponse(made), FINAL if over else 0)


def _input(request: Any, name: str) -> Any:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
