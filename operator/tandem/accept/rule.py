"""What a rule is, and what it says."""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.api.types import ServiceSpec
from tandem.settings import Profile


@dataclass(frozen=True)
class Refusal:
    """Why a spec is not accepted: a CamelCase reason, and what to write instead."""

    reason: str
    message: str


Rule = Callable[[ServiceSpec, Profile], Refusal | None]
"""A rule that a spec may break."""
Warn = Callable[[ServiceSpec, Profile], str | None]
"""Something that is served as asked, though the user should know better."""
