"""A decoupled engine that answers what each request says: its `script`, a JSON list of steps.

A step is a list of token ids, a response with them; a number, seconds to wait; "wait", until the request's id is
stopped (once for each); {"error": message, "code": name}, the end with an error. After the last step comes the end,
without tokens.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Nothing is under way."""
        self._threads = ThreadPoolExecutor(64)
        self._stopped: dict[str, threading.Semaphore] = {}

    def execute(self, requests: list[Any]) -> None:
        """Answer each request on a thread of its own."""
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            sender = request.get_response_sender()
            if "stop" in inputs:
                self._stopped.setdefault(request.request_id(), threading.Semaphore(0)).release()
                sender.send(flags=FINAL)
                continue
            name = request.request_id()
            stopped = self._stopped.setdefault(name, threading.Semaphore(0))
            self._threads.submit(_answer, name, sender, json.loads(inputs["script"].item()), stopped)


def _answer(name: str, sender: Any, script: list[Any], stopped: threading.Semaphore) -> None:
    for step in script:
        if step == "wait":
            print(f"stream {name} waits", flush=True)
            stopped.acquire(timeout=600)
        elif isinstance(step, dict):
            error = pb_utils.TritonError(step["error"], getattr(pb_utils.TritonError, step.get("code", "INTERNAL")))
            sender.send(pb_utils.InferenceResponse([], error), FINAL)
            return
        elif isinstance(step, list):
            tensors = {"output_ids": [[step]], "sequence_length": [[len(step)]]}
            made = [pb_utils.Tensor(name, np.array(value, np.int32)) for name, value in tensors.items()]
            sender.send(pb_utils.InferenceResponse(made))
        else:
            time.sleep(step)
    sender.send(flags=FINAL)
