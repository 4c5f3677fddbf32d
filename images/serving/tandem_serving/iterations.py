"""An engine's iterations, from the server's metrics page: TensorRT-LLM's backend counts them there, and so does the
reference engine. They go on as long as the engine works, for whomever."""

from __future__ import annotations

import os
from http.client import HTTPException

from tandem_serving import drain

PORT = "TANDEM_METRICS_PORT"
"""The variable by which the entry point tells models the port of the page."""
FAMILY, LABEL = "nv_trt_llm_general_metrics{", 'general_type="iteration_counter"'
TIMEOUT_SECONDS = 2.0


def count(model: str) -> str | None:
    """The count of a model's engine; None where the page or the model does not tell."""
    if not (port := os.environ.get(PORT)):
        return None
    try:
        page = drain.page(int(port), TIMEOUT_SECONDS)
    except (OSError, ValueError, HTTPException):
        return None
    return find(page, model)


def find(page: str, model: str) -> str | None:
    """The same, on a page."""
    lines = (line for line in page.splitlines() if line.startswith(FAMILY))
    return next((line.rsplit(" ", 1)[1] for line in lines if LABEL in line and f'model="{model}"' in line), None)
