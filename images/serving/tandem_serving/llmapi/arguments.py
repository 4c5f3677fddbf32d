"""The arguments of `tensorrt_llm.LLM`: a YAML file, and what no YAML file can hold."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tandem_serving.checkpoint import ModelLimits, read_limits
from tandem_serving.llmapi.dialect import TENSORRT_LLM

# TensorRT-LLM's own spellings of the decoding type, by version.
USER_PROVIDED = ("User_Provided", "UserProvided")


class ArgumentsError(Exception):
    """The model cannot be started; the message says what to change."""


def read(path: Path) -> dict[str, Any]:
    """The arguments that a YAML file holds: `model`, a checkpoint's folder, and all else that `LLM` takes.

    Raises ArgumentsError.
    """
    try:
        arguments = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentsError(f"{path} cannot be read ({error.strerror}): mount the revision's ConfigMap") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentsError(f"{path} is no YAML ({reason}): apply the resource again") from None
    if not isinstance(arguments, dict) or not isinstance(arguments.get("model"), str):
        raise ArgumentsError(f"{path} names no model: it must be a mapping with the key `model`, a folder")
    return arguments


def limits(arguments: Mapping[str, Any], package: str) -> ModelLimits:
    """Of the model, by its folder and `max_seq_len`, which TensorRT-LLM takes beyond the model's own, too; for other
    packages it is a bound. Raises CheckpointError."""
    own, asked = read_limits(Path(arguments["model"])), int(arguments.get("max_seq_len") or 0)
    return replace(own, max_sequence_len=asked) if asked and package == TENSORRT_LLM else own.at_most(asked)


def with_drafter(
    arguments: Mapping[str, Any], drafter: object, resource_manager: object | None = None
) -> dict[str, Any]:
    """The arguments with a drafter in their `speculative_config`, and with its resource manager where it has one.

    Raises ArgumentsError.
    """
    speculation = arguments.get("speculative_config")
    if not isinstance(speculation, dict) or speculation.get("decoding_type") not in USER_PROVIDED:
        raise ArgumentsError(
            "there is a drafter, but speculative_config.decoding_type is not User_Provided: "
            "set it, or leave the drafter out"
        )
    manager = {} if resource_manager is None else {"resource_manager": resource_manager}
    return {**arguments, "speculative_config": {**speculation, "drafter": drafter, **manager}}


def load_drafter(entry_point: str, folder: str, what: str = "drafter") -> object:
    """The object that `module:attribute` names; a class is made an instance of, without arguments.

    `folder`, unless empty, is where Python looks first. Raises ArgumentsError.
    """
    module_name, _, attribute = entry_point.partition(":")
    if not module_name or not attribute:
        raise ArgumentsError(f"the {what} is {entry_point!r}: write module:attribute")
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
        found = operator.attrgetter(attribute)(module)
        return found() if isinstance(found, type) else found
    except Exception as error:  # the user's code raises what it likes: the message says where to look
        where = f" ({folder} comes first on the path)" if folder else ""
        raise ArgumentsError(
            f"the {what} {entry_point} cannot be loaded: {error!r}{where}; check its ConfigMap, or the image"
        ) from error
