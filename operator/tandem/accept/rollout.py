"""How a new revision takes the place of the old one."""

from tandem.accept.rule import Warn
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec


def _replace(spec: ServiceSpec, profile: Profile) -> str | None:
    if spec.rollout.strategy == "Surge":
        return None
    return (
        "rollout.strategy Replace stops the old servers before new ones start: each change of the revision has"
        " downtime until the new ones answer"
    )


WARNINGS: tuple[Warn, ...] = (_replace,)
