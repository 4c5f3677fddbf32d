"""Errors between Triton and us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from tandem_serving.errors import EngineError, ServingError, without_trace
from tandem_serving.requests.tensors import Array

CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "CANCELLED")


def triton_error(error: ServingError) -> Any:
    """The pb_utils.TritonError for one of ours."""
    return pb_utils.TritonError(str(error), getattr(pb_utils.TritonError, error.code))


def plain_error(error: Any, role: str = "") -> EngineError:
    """Our error for another model's TritonError: its message without a traceback, its code."""
    names = {getattr(pb_utils.TritonError, name): name for name in CODES}
    message = without_trace(error.message())
    return EngineError(f"{role} engine: {message}" if role else message, names.get(error.code(), "INTERNAL"))


def raise_in_band(tensors: Mapping[str, Array]) -> None:
    """Raise the EngineError that a response with `ONE_RESPONSE` holds, if it holds one."""
    reason = tensors.get("finish_reason")
    code = "" if reason is None else reason.flat[0].decode()
    if code in CODES:
        raise EngineError(tensors["text_output"].flat[0].decode(), code)
