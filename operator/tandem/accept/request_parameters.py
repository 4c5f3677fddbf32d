"""Engines that follow fewer parameters of requests than clients send."""

from tandem.accept.rule import Warn
from tandem.api.decoding import Mode
from tandem.api.profile import Profile
from tandem.api.roles import references
from tandem.api.types import ServiceSpec
from tandem.engines.request_parameters import refused
from tandem.render.latest import switched_llm_args


def _draws_nothing(spec: ServiceSpec, profile: Profile) -> str | None:
    """OpenAI's API has temperature 1 where none is sent: then clients that send nothing are refused, too."""
    folders = {role: str(role) for role in references(spec)}  # where models lie decides nothing here
    llm_api = spec.runtime.mode is Mode.LLMAPI
    why = refused(spec, profile, switched_llm_args(spec, profile, folders) if llm_api else {}).get("temperature")
    if why is None:
        return None
    return f"requests that sample get 400, those of OpenAI's API without temperature 0 among them: {why}"


WARNINGS: tuple[Warn, ...] = (_draws_nothing,)
