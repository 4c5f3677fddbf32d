"""What a rule is, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.settings import Settings


@dataclass(frozen=True)
class Refusal:
    """Why a spec is not accepted: a reason, and a message with what to write instead."""

    reason: SpecReason
    message: str


Rule = Callable[[ServiceSpec, Profile], Refusal | None]
"""A rule that a spec may break."""
SettingsRule = Callable[[ServiceSpec, Settings], Refusal | None]
"""A rule of the administrator's that a spec may break."""
Warn = Callable[[ServiceSpec, Profile], str | None]
"""Something that is served as asked, with a drawback that the user should know."""
