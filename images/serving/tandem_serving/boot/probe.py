"""The startup probe: one short generation through the whole path."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

from tandem_serving.addresses import loopback
from tandem_serving.engine.health import CANARY_PROMPT

# The models that answer one response, by mode. Engines of mode BLS are named tensorrt_llm, too.
UNARY = ("tensorrt_llm_bls", "tensorrt_llm")
# The same wish in the inputs of either mode, which refuses those of the other. Of four tokens a draft engine makes
# some: so its first call, which may have to compile, holds up no client.
BLS = {"max_tokens": 4, "exclude_input_in_output": True}
LLM_API = {"sampling_param_max_tokens": 4, "sampling_param_exclude_input_from_output": True}


class ProbeError(Exception):
    """The service does not generate (yet); the message is one line."""


def unary_model(repository: Path) -> str:
    """The model of UNARY that a model repository has. Raises ProbeError."""
    for model in UNARY:
        if (repository / model).is_dir():
            return model
    raise ProbeError(f"{repository} has none of {', '.join(UNARY)}: the server is still being set up")


def generate(port: int, model: str, seconds: float) -> str:
    """Generate some tokens over HTTP; returns their text. Raises ProbeError."""
    body = json.dumps({"text_input": CANARY_PROMPT, **(BLS if model == UNARY[0] else LLM_API)})
    connection = http.client.HTTPConnection(loopback(), port, timeout=seconds)
    try:
        connection.request("POST", f"/v2/models/{model}/generate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise ProbeError(f"no answer on port {port} ({error!r}): the server is still starting or down") from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ProbeError(f"{model} answered {response.status}: {' '.join(answer.split())[:300]}")
    try:
        return str(json.loads(answer)["text_output"])
    except (ValueError, KeyError, TypeError):
        raise ProbeError(f"{model} answered without text_output: {' '.join(answer.split())[:300]}") from None
