"""Stands for Triton's module `triton_python_backend_utils`, which exists only inside Triton: what our adapters use.

A test answers inner calls by `answers[0]`, a function of the call and its inputs.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from tandem_serving.requests.tensors import Array

CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "CANCELLED")


class Tensor:
    """A tensor by name."""

    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Array:
        """What is in it."""
        return self._array

    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._array.shape


class TritonError:
    """An error in a response."""

    def __init__(self, message: str, code: int = 1) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        """What went wrong."""
        return self._message

    def code(self) -> int:
        """One of `CODES`, by its number."""
        return self._code


for number, code in enumerate(CODES):
    setattr(TritonError, code, number)


class TritonModelException(Exception):
    """What a call raises that cannot be made."""


class InferenceResponse:
    """Tensors, or an error."""

    def __init__(self, output_tensors: Iterable[Tensor] = (), error: TritonError | None = None) -> None:
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        """What was answered."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it failed."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Why."""
        return self._error


class InferenceRequest:
    """A call of another model, answered by the test."""

    def __init__(
        self,
        model_name: str,
        inputs: list[Tensor],
        requested_output_names: list[str],
        request_id: str = "",
        parameters: Mapping[str, Any] | None = None,
        preferred_memory: object = None,
    ) -> None:
        self.model_name, self.request_id = model_name, request_id
        self.inputs = {tensor.name(): tensor.as_numpy() for tensor in inputs}
        self.outputs, self.parameters = requested_output_names, parameters or {}
        self.decoupled = False

    def exec(self, decoupled: bool = False) -> Any:
        """One response, or all that come."""
        self.decoupled = decoupled
        found = answers[0](self)
        return iter([found]) if decoupled else found


Answer = Callable[[InferenceRequest], InferenceResponse]
answers: list[Answer] = [lambda call: InferenceResponse([])]
"""What answers calls."""


def tensors(**arrays: Array) -> InferenceResponse:
    """A response with these."""
    return InferenceResponse([Tensor(name, array) for name, array in arrays.items()])


def install() -> None:
    """Let it be imported by Triton's name, unless Triton's own can be."""
    module: Any = ModuleType("triton_python_backend_utils")
    for kind in (Tensor, TritonError, TritonModelException, InferenceResponse, InferenceRequest):
        setattr(module, kind.__name__, kind)
    module.PreferredMemory = lambda kind, number: (kind, number)
    module.TRITONSERVER_MEMORY_CPU, module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 0, 1
    sys.modules.setdefault(module.__name__, module)
