"""A stand-in for `speculative_bls` that needs no engine: same tensors, tokens by rule. Copied into a repository.

Token i is i, its text the letter i of the alphabet. A pass proposes k draft tokens and accepts k - 1. The
prompt says what happens: `refuse`, `cut` (the stream ends early), `endless` (until cancelled), `differ` (the
target alone makes other tokens), `meet ...` (goes on when three of these run), `hold` (until two did, and
for a while), `inputs` (the request as JSON, as text).
"""

import json
import threading
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

DRAFT_TOKENS = 3


def letters(start: int, count: int) -> str:
    """The text of `count` tokens from token `start` on."""
    return "".join(chr(ord("a") + i % 26) for i in range(start, start + count))


def tensor(name: str, value: Any) -> Any:
    """An output tensor of batch size 1; strings as UTF-8."""
    if isinstance(value, str):
        return pb_utils.Tensor(name, np.array([[value.encode()]], np.object_))
    return pb_utils.Tensor(name, np.atleast_2d(np.array(value, np.int32)))


def read(request: Any) -> dict[str, list[Any]]:
    """A request's inputs."""
    tensors = {each.name(): each.as_numpy().reshape(-1).tolist() for each in request.inputs()}
    return {
        name: [value.decode() if isinstance(value, bytes) else value for value in values]
        for name, values in tensors.items()
    }


class TritonPythonModel:
    """Runs every request on a thread of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Nothing runs yet."""
        self._held = 0
        self._lock = threading.Lock()
        self._meeting = threading.Barrier(3, timeout=60)
        self._two = threading.Event()

    def execute(self, requests: list[Any]) -> None:
        """Start the requests."""
        for request in requests:
            threading.Thread(target=self._respond, args=(read(request), request.get_response_sender())).start()

    def _respond(self, inputs: dict[str, list[Any]], sender: Any) -> None:
        prompt = inputs["text_input"][0]
        print("fake_bls: a request", flush=True)
        try:
            self._answer(prompt, inputs, sender)
        except threading.BrokenBarrierError:
            self._end(sender, error="the others did not come")

    def _answer(self, prompt: str, inputs: dict[str, list[Any]], sender: Any) -> None:
        draft_tokens = inputs.get("num_draft_tokens", [DRAFT_TOKENS])[0]
        if prompt == "refuse":
            self._end(sender, error="the prompt is refused: write another")
        elif prompt == "inputs":
            self._end(sender, [tensor("text_output", json.dumps(inputs)), tensor("finish_reason", "stop")])
        elif prompt == "cut":
            sender.send(pb_utils.InferenceResponse([tensor("text_output", "a"), tensor("output_ids", [0])]))
            self._end(sender)
        elif prompt == "endless":
            self._endless(sender)
        else:
            self._wait(prompt)
            self._complete(sender, inputs["max_tokens"][0], draft_tokens, prompt == "differ" and not draft_tokens)

    def _wait(self, prompt: str) -> None:
        if prompt == "hold":
            # Counted here: a client may know that a request is over before the thread that answered it goes on.
            with self._lock:
                self._held += 1
                print(f"fake_bls: holding {self._held}", flush=True)
                if self._held > 1:
                    self._two.set()
            self._two.wait(60)
            time.sleep(0.5)
            with self._lock:
                self._held -= 1
        if prompt.startswith("meet "):
            self._meeting.wait()

    def _complete(self, sender: Any, count: int, k: int, wrong: bool) -> None:
        done = drafted = accepted = 0
        while done < count:
            take = min(max(k, 1), count - done)
            drafted, accepted = drafted + k, accepted + take - 1
            ids = [i + (1 if wrong and i == 4 else 0) for i in range(done, done + take)]
            outputs = [
                tensor("text_output", letters(done, take)),
                tensor("output_ids", ids),
                tensor("num_accepted_draft_tokens", take - 1),
                tensor("draft_text_length", take - 1),
                tensor("finish_reason", "length" if done + take == count else ""),
            ]
            done += take
            if done < count:
                sender.send(pb_utils.InferenceResponse(outputs))
        totals = {"total_draft_tokens": drafted, "total_accepted_draft_tokens": accepted, "num_input_tokens": 5}
        self._end(sender, [*outputs, *(tensor(name, value) for name, value in totals.items())])

    def _endless(self, sender: Any) -> None:
        while not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([tensor("text_output", "a"), tensor("output_ids", [0])]))
            time.sleep(0.02)
        print("fake_bls: cancelled", flush=True)
        self._end(sender)

    def _end(self, sender: Any, outputs: list[Any] | None = None, error: str = "") -> None:
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if outputs is None and not error:
            sender.send(flags=final)
            return
        failure = pb_utils.TritonError(error) if error else None
        sender.send(pb_utils.InferenceResponse(outputs or [], error=failure), final)
