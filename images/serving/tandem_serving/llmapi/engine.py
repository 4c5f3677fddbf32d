"""The seam between the LLM-API model and an engine: what the model asks of a kind of engine, and of one that runs.

`engines` has the kinds. The model knows requests, text, queues and metrics; everything that differs between engines
is behind these protocols.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tandem_serving.checkpoint import ModelLimits
from tandem_serving.errors import EngineError
from tandem_serving.llmapi.chunks import SequenceOutput
from tandem_serving.llmapi.request import Codec, Features, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.statistics import EngineFamilies, EngineState

STOPPED = "the engine has stopped: its log says why; send the request to another replica"


def stopped() -> EngineError:
    """The error of a request whose engine is gone; its cause, if it has one, is what the engine raised."""
    return EngineError(STOPPED, "UNAVAILABLE")


class ArgumentsRefused(Exception):
    """The image does not take the engine's arguments; the message has the engine's words, and what to change."""


class LlmApiCall(AsyncIterable[SequenceOutput], Protocol):
    """A sequence in the engine; iterating raises ServingError."""

    def abort(self) -> None:
        """Have the engine give it up, unless it is over."""
        ...


class LlmApiEngine(Protocol):
    """An engine that runs sequences; `start` is called on the loop of its tasks, always the same.

    Text is not the engine's: it gets token ids and returns token ids, and `chunks` makes text of them. So stop words,
    whole characters and deltas are the same for all engines, and as in the speculative BLS.
    """

    codec: Codec
    name: str
    """What reports and logs call it."""
    families: EngineFamilies
    """The metric families of its state."""

    def start(self, prompt: LlmApiPrompt, request: LlmApiRequest) -> LlmApiCall:
        """Start a sequence. Raises RequestError where the engine refuses it, EngineError where it is gone."""
        ...

    def states(self) -> AsyncIterator[EngineState]:
        """Its state after each iteration, while there are some, or its state now; nothing where it reports none."""
        ...

    def healthy(self) -> bool:
        """Whether it lives, as far as it knows."""
        ...

    def error(self) -> str:
        """What ended it, where it knows that and lives no longer; "": it does not."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class EngineKind(Protocol):
    """A kind of engine. `arguments` are those of llm_args.yaml: `model`, a checkpoint's folder, and what else the
    engine takes. Nothing here but `dry_run` and `load` imports the engine's package, which may open the GPUs."""

    @property
    def name(self) -> str:
        """The engine's own name, for messages."""
        ...

    @property
    def families(self) -> EngineFamilies:
        """The metric families of its state."""
        ...

    def limits(self, arguments: Mapping[str, Any]) -> ModelLimits:
        """What a sequence may hold. Raises CheckpointError."""
        ...

    def features(self, arguments: Mapping[str, Any]) -> Features:
        """What requests may ask for: guided decoding, LoRA adapters. The rest of Features is not the engine's."""
        ...

    def reports_drafts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether its sequences report their drafts, so that these are counted: it drafts, and its states do not
        count them."""
        ...

    def with_drafter(
        self, arguments: Mapping[str, Any], drafter: object, resource_manager: object | None
    ) -> dict[str, Any]:
        """The arguments with a drafter of the user's, and what goes with it. Raises ArgumentsError."""
        ...

    def split(self, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """Over how many GPUs it splits each layer, and the layers."""
        ...

    def missing_code(self, folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> str:
        """What to do about code of a checkpoint that the engine would run and that is not there; "": nothing.
        `folders`: by role."""
        ...

    def dry_run(self, arguments: Mapping[str, Any]) -> None:
        """Have the image's own checks look at the arguments; nothing is loaded. A drafter may be missing.

        Raises ArgumentsRefused, and whatever a package raises that cannot check them here, as without a GPU.
        """
        ...

    def run_ranks(self, arguments: Mapping[str, Any]) -> None:
        """In a pod of a group that is not the leader: be its ranks, until one of them ends.

        Raises ArgumentsError where something else starts them, ArgumentsRefused.
        """
        ...

    def load(self, arguments: Mapping[str, Any]) -> LlmApiEngine:
        """Load the model: minutes for a large one. Whatever it raises goes up to Triton."""
        ...
