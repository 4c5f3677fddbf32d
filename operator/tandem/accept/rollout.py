"""How a new revision takes the place of the old one."""

from tandem.api.types import ServiceSpec
from tandem.engines import Engine
from tandem.engines.rule import Warn


def _replace(spec: ServiceSpec, engine: Engine) -> str | None:
    if spec.rollout.strategy == "Surge":
        return None
    return (
        "rollout.strategy Replace stops the old servers before new ones start: each change of the revision has"
        " downtime until the new ones answer"
    )


WARNINGS: tuple[Warn, ...] = (_replace,)
