"""What a rule is, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tandem.api.conditions import SpecReason
from tandem.api.types import ServiceSpec

if TYPE_CHECKING:
    from tandem.engines.engine import Engine


@dataclass(frozen=True)
class Refusal:
    """Why a spec is not accepted: a reason, and a message with what to write instead."""

    reason: SpecReason
    message: str


Rule = Callable[[ServiceSpec, "Engine"], Refusal | None]
"""A rule that a spec may break, on the engine of its profile."""
Warn = Callable[[ServiceSpec, "Engine"], str | None]
"""Something that is served as asked, with a drawback that the user should know."""
EngineRule = Callable[[ServiceSpec, Any], Refusal | None]
"""A rule of one engine, which gets an object of its class."""
EngineWarn = Callable[[ServiceSpec, Any], str | None]
"""Likewise."""
