"""What no YAML file can hold of the arguments of `LLM`: a drafter of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_serving.llmapi.arguments import ArgumentsError

# TensorRT-LLM's own spellings of the decoding type, by version.
USER_PROVIDED = ("User_Provided", "UserProvided")


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


def with_any_drafter(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """With something in the place of a drafter that is missing, for checks: the argument class wants an object, of
    any kind."""
    speculation = arguments.get("speculative_config") or {}
    missing = speculation.get("decoding_type") in USER_PROVIDED and "drafter" not in speculation
    return with_drafter(arguments, object()) if missing else arguments
