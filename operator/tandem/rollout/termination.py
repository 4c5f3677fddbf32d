"""The last words of the servers' container: which engine failed, and how.

The entry point writes them; see images/serving. They come from a pod, which may write anything: nothing is believed
that is not of this form, and nothing is passed on but a line of bounded length.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

MOST_MESSAGE = 600
"""Characters of the engine's own error: a condition and an Event have 1024, and say where it happened."""


class EngineFailure(BaseModel):
    """An engine that failed, so that the server ended itself."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    """Triton's name of the engine's model."""
    reason: Literal["EngineFailing", "EngineHung"]
    """Whether its answers were errors, or there were none."""
    message: str
    """The engine's own last error."""

    @property
    def words(self) -> str:
        """For people: which engine, and its error on one line."""
        error = _line(self.message)
        short = error if len(error) <= MOST_MESSAGE else f"{error[:MOST_MESSAGE]} …"
        return f"engine {_line(self.model)} {'hung' if self.reason == 'EngineHung' else 'failed'}: {short}"


def _line(text: str) -> str:
    """`text` on one line, without what could move a terminal's cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class _Message(BaseModel):
    failure: EngineFailure = Field(alias="engineFailure")


def engine_failure(message: str) -> EngineFailure | None:
    """What a termination message says of an engine; None for every other."""
    try:
        return _Message.model_validate_json(message).failure
    except ValidationError:
        return None
