"""A decoupled engine that answers each row with what the row asks for, the last first.

A row is a JSON object: `error` (with `code`), or outputs by name as [type, values]; or null, for no answer.
"""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = 1  # pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, which exists only inside Triton


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def execute(self, requests: list[Any]) -> None:
        """Answer each row of each request, then end it."""
        for request in requests:
            sender = request.get_response_sender()
            [rows] = [tensor.as_numpy().reshape(-1) for tensor in request.inputs()]
            for row in rows[::-1]:
                if asked := json.loads(row):
                    sender.send(_response(asked))
            sender.send(flags=FINAL)


def _response(asked: dict[str, Any]) -> Any:
    if "error" in asked:
        code = getattr(pb_utils.TritonError, asked["code"])
        return pb_utils.InferenceResponse([], pb_utils.TritonError(asked["error"], code))
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, np.array(values, kind)) for name, (kind, values) in asked.items()]
    )
