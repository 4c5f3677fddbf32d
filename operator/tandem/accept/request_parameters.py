"""Engines that follow fewer parameters of requests than clients send."""

from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines import Engine
from tandem.engines.rule import Warn


def _draws_nothing(spec: ServiceSpec, engine: Engine) -> str | None:
    """OpenAI's API has temperature 1 where none is sent: then clients that send nothing are refused, too."""
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    why = engine.refused_parameters(spec, folders).get("temperature")
    if why is None:
        return None
    return f"requests that sample get 400, those of OpenAI's API without temperature 0 among them: {why}"


WARNINGS: tuple[Warn, ...] = (_draws_nothing,)
