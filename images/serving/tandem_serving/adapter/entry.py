"""What the entry points (`models/*/1/model.py`) of all models read from Triton."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tandem_serving.requests.tensors import Array


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """The string parameters of the model configuration that Triton passes to `initialize`."""
    config = json.loads(args["model_config"])
    return {name: value["string_value"] for name, value in config.get("parameters", {}).items()}


def tensors_of(triton_request: Any) -> dict[str, Array]:
    """A Triton request's input tensors by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in triton_request.inputs()}
