"""The canary of a BLS: a call of one token, as an ordinary request makes it, straight to the target engine."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

from tandem_serving.adapter import inner_calls
from tandem_serving.adapter.engine import EngineModel, engine_inputs
from tandem_serving.bls.request import BlsParser
from tandem_serving.engine.health import CANARY_PROMPT
from tandem_serving.engine.watch import AskAgainError
from tandem_serving.errors import EngineError


class Canary:
    """Calls an engine when it is called. The prompt is the startup probe's: this engine takes it."""

    def __init__(self, engine: EngineModel, parser: BlsParser) -> None:
        self._engine = engine
        request = parser.parse(
            {"text_input": np.array([[CANARY_PROMPT.encode()]], np.object_), "max_tokens": _one(1)}
        )
        (prompt,) = request.prompts
        arrays = {
            **engine_inputs(prompt, request)["target"].tensors,
            "input_ids": prompt.ids[None],
            "input_lengths": _one(len(prompt.ids)),
            "request_output_len": _one(1),
        }
        self._tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items()]

    def __call__(self) -> None:
        """Return when it is answered. Raises EngineError, AskAgainError where the server ends or loads the engine."""
        try:
            self._engine.ask(self._tensors)
        except inner_calls.ServerEndsError:  # Triton takes no call any more, nor the question whether it is ready
            raise AskAgainError from None
        except EngineError:
            if not _ready(self._engine.name):
                raise AskAgainError from None
            raise


def _one(value: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    return np.array([[value]], np.int32)


def _ready(model: str) -> bool:
    try:
        return bool(pb_utils.is_model_ready(model_name=model))
    except pb_utils.TritonModelException:  # the server itself is not, any more
        return False
