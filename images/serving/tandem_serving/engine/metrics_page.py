"""The server's metrics page, read inside the pod. An engine's iterations are there: TensorRT-LLM's backend counts
them, and so does the reference engine. They go on as long as the engine works, for whomever."""

from __future__ import annotations

import os
import urllib.request
from http.client import HTTPException

from tandem_serving.addresses import authority

PORT = "TANDEM_METRICS_PORT"
"""The variable by which the entry point gives models the port of the page."""
FAMILIES = ("nv_trt_llm_general_metrics{", "tandem_engine_general_metrics{")
LABEL = 'general_type="iteration_counter"'
COUNT_SECONDS = 2.0
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Never by the proxy that a pod's HTTP_PROXY names: it knows no such port, and every stream would be cut."""


def page(port: int, seconds: float) -> str:
    """The metrics page of the server on this port. Raises OSError and HTTPException."""
    with _DIRECTLY.open(f"http://{authority(port)}/metrics", timeout=seconds) as reply:
        text: bytes = reply.read()
    return text.decode(errors="replace")


def iterations(model: str) -> str | None:
    """The count of a model's engine; None where the page or the model does not tell."""
    if not (port := os.environ.get(PORT)):
        return None
    try:
        text = page(int(port), COUNT_SECONDS)
    except (OSError, ValueError, HTTPException):
        return None
    return find_iterations(text, model)


def find_iterations(page: str, model: str) -> str | None:
    """The same, on a page."""
    lines = (line for line in page.splitlines() if line.startswith(FAMILIES))
    return next((line.rsplit(" ", 1)[1] for line in lines if LABEL in line and f'model="{model}"' in line), None)
