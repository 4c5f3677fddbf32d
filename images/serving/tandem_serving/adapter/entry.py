"""What the entry points (`models/*/1/model.py`) of all models read from Triton."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tandem_serving.requests.request_parameters import KnownParameters
from tandem_serving.requests.tensors import Array


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """The string parameters of the model configuration that Triton passes to `initialize`."""
    config = json.loads(args["model_config"])
    return {name: value["string_value"] for name, value in config.get("parameters", {}).items()}


def known_parameters(args: Mapping[str, str], repeated: Mapping[str, Collection[str]]) -> KnownParameters:
    """What clients of a model may send as parameters, by its configuration as Triton passes it to `initialize`."""
    inputs = [each["name"] for each in json.loads(args["model_config"])["input"]]
    return KnownParameters([name for name in inputs if name != "stop"], repeated)


def tensors_of(triton_request: Any) -> dict[str, Array]:
    """A Triton request's input tensors by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in triton_request.inputs()}
