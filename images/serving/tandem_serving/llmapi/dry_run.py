"""The dry run of the arguments of `LLM`: the image's own argument class makes an object of them, nothing is loaded.

The preflight makes it, without a GPU. Where the image needs one for that, it is the server's pod that makes it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from tandem_serving.engine import failure
from tandem_serving.engine.health import EngineVerdict
from tandem_serving.llmapi import dialect

log = logging.getLogger("tandem.llmapi")

# Where the class is, by package version: `TorchLlmArgs` since 0.20, `LlmArgs` is its alias in later ones.
CLASSES = ("llmapi.llm_args:TorchLlmArgs", "llmapi.llm_args:LlmArgs")


MOST_MESSAGE = 500
"""Characters of the verdict: escaped, they stay within the 4 KiB of a termination message."""


class ArgumentsRefused(Exception):
    """The image does not take the arguments; the message has its words, and what to change."""


def argument_class(package: str) -> Any:
    """The class. Raises ImportError, and what the package's libraries raise where they miss the driver: anything."""
    for place in CLASSES:
        module, name = place.split(":")
        found = getattr(importlib.import_module(f"{package}.{module}"), name, None)
        if found is not None:
            return found
    raise ImportError(f"no {' or '.join(CLASSES)} in it")


def try_arguments(found: Any, arguments: Mapping[str, Any], package: str) -> None:
    """Make an object of the class `found`, of arguments as the server makes them.

    Raises ArgumentsRefused; anything else, such as RuntimeError, is raised by a check that wants a GPU.
    """
    try:
        found(**dialect.llm_arguments(arguments, package))
    except (ValueError, TypeError) as error:  # pydantic's are ValueErrors
        raise ArgumentsRefused(
            f"{package} of this image refuses the arguments: {error}; change the field, or runtime.extraLlmArgs"
        ) from None


def before_loading(arguments: Mapping[str, Any], package: str) -> None:
    """The dry run in the server's pod. A refusal ends the container, with the verdict as its termination message.

    Raises ArgumentsRefused.
    """
    try:
        try_arguments(argument_class(package), arguments, package)
    except ArgumentsRefused as refused:
        line = " ".join(str(refused).split())[:MOST_MESSAGE]  # pydantic's have several
        failure.publish("tensorrt_llm", EngineVerdict("EngineArgumentsRefused", line))
        raise
    except Exception as error:  # noqa: BLE001 - what the image asks for is not known here: the engine has the last word
        log.info("the arguments could not be tried before the engine starts: %s", error)
