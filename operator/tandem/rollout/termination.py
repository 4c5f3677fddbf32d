"""The termination message of the servers' container: which engine failed, and how.

The entry point writes it; see images/serving. It comes from a pod, which may write anything: what is not of this form
is ignored, and a line of bounded length alone is passed on.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from tandem.api.conditions import ServingReason
from tandem.rollout.redaction import redacted

MOST_MESSAGE = 600
"""Characters of the engine's own error: a condition and an Event have 1024, and name the place, too."""


class EngineFailure(BaseModel):
    """An engine that failed, so that the server ended itself."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    """Triton's name of the engine's model; in mode LLMAPI the engine's own name."""
    reason: Literal[ServingReason.ENGINE_FAILING, ServingReason.ENGINE_HUNG, ServingReason.ENGINE_ARGUMENTS_REFUSED]
    """Whether its answers were errors, there were none, or it was never loaded."""
    message: str
    """The engine's own last error."""

    @property
    def description(self) -> str:
        """For people: which engine, and its error on one line."""
        error = redacted(_line(self.message))
        short = error if len(error) <= MOST_MESSAGE else f"{error[:MOST_MESSAGE]} …"
        return (
            f"engine {_line(self.model)} {'hung' if self.reason is ServingReason.ENGINE_HUNG else 'failed'}: {short}"
        )


def _line(text: str) -> str:
    """`text` on one line, without what could move a terminal's cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class _Message(BaseModel):
    failure: EngineFailure = Field(alias="engineFailure")


def engine_failure(message: str) -> EngineFailure | None:
    """The engine's failure in a termination message; None in every other."""
    try:
        return _Message.model_validate_json(message).failure
    except ValidationError:
        return None
