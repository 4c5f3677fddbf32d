"""The string parameters of a model's config.pbtxt, which Triton passes to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tandem_serving.engine.health import IDLE

T = TypeVar("T", int, float)


class ParameterError(Exception):
    """A parameter of config.pbtxt is missing or wrong; the message says which."""


def queue_timeout(parameters: Mapping[str, str]) -> float:
    """Seconds that a request waits in the queue at most; infinite where it is not set. Raises SettingsError."""
    return number(parameters, "queue_timeout_seconds", float, "inf", 0.001)


def canary_seconds(parameters: Mapping[str, str]) -> float:
    """Seconds without an answer after which the engine is asked whether it works; 0: never. Raises SettingsError."""
    return number(parameters, "canary_seconds", float, str(IDLE), 0)


def text(parameters: Mapping[str, str], name: str) -> str:
    """A parameter that must be there. Raises SettingsError."""
    value = parameters.get(name, "")
    if not value:
        raise ParameterError(f"parameter {name} is missing in config.pbtxt")
    return value


def flag(parameters: Mapping[str, str], name: str) -> bool:
    """Whether a flag is set; one that is absent is not."""
    return parameters.get(name, "").lower() == "true"


def number(parameters: Mapping[str, str], name: str, kind: Callable[[str], T], default: str, least: float) -> T:
    """A number, at least `least`. Raises SettingsError."""
    value_text = parameters.get(name) or default
    try:
        value = kind(value_text)
    except ValueError:
        raise ParameterError(f"parameter {name} in config.pbtxt is {value_text!r}: write a number") from None
    if value < least:
        raise ParameterError(f"parameter {name} in config.pbtxt is {value_text}: write {least} or more")
    return value
