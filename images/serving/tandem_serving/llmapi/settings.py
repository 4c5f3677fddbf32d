"""The LLM-API model's settings, from the string parameters of its config.pbtxt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem_serving.parameters import canary_seconds, number, text
from tandem_serving.requests.refused import RefusedParameters


@dataclass(frozen=True)
class LlmApiSettings:
    """What config.pbtxt says. `llm_args_path`: the YAML file of the engine's arguments; `engine`: its kind.

    `drafter`: `module:attribute` of a drafter of the user's, looked for in `drafter_path` too, and `resource_manager`
    of what goes with it; empty: none.
    `running`: sequences that the engine runs at once (its max_batch_size), `waiting`: beyond those.
    `canary_seconds`: see engine_health.IDLE. `refused`: parameters of requests without effect.
    """

    llm_args_path: Path
    engine: str
    drafter: str
    resource_manager: str
    drafter_path: str
    request_timeout: float
    running: int
    waiting: int
    canary_seconds: float
    refused: RefusedParameters


def read(parameters: Mapping[str, str]) -> LlmApiSettings:
    """Settings from a model's parameters. Raises SettingsError."""
    return LlmApiSettings(
        llm_args_path=Path(text(parameters, "llm_args_path")),
        engine=text(parameters, "engine"),
        drafter=parameters.get("drafter", ""),
        resource_manager=parameters.get("resource_manager", ""),
        drafter_path=parameters.get("drafter_path", ""),
        request_timeout=number(parameters, "request_timeout_seconds", float, "600", 0.001),
        running=number(parameters, "max_running_sequences", int, "64", 1),
        waiting=number(parameters, "max_waiting_sequences", int, "1024", 0),
        canary_seconds=canary_seconds(parameters),
        refused=RefusedParameters.parse(parameters.get("refused_parameters", "")),
    )
