"""A fake of a GPU: numpy's model, which takes a pass's tokens from the last one by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.model import Llama
from reference_engine.scheduler import Capacity, Scheduler
from unit.reference_engine import tiny_llama


class Feeding:
    """A `Backend` around Llama. Tokens are in `chosen` at once; that a pick is called late changes nothing.

    `events`: "pass" and "take" as they come, a pass with tokens of the last one as "fed".
    """

    def __init__(self, model: Llama) -> None:
        self._model = model
        self.chosen: list[int] = []
        self.events: list[str] = []

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """See Backend."""
        self.events.append("fed" if any((each.tokens < 0).any() for each in segments) else "pass")
        return self._model.forward([replace(each, tokens=self._known(each.tokens)) for each in segments])

    def _known(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return np.array([token if token >= 0 else self.chosen[-1 - token] for token in tokens], np.int32)

    def choose(self, logits: npt.NDArray[np.float32], choices: Sequence[Choice]) -> list[Pick]:
        """See Backend."""
        picks = self._model.choose(logits, choices)
        rows = [(pick, row) for pick, each in zip(picks, choices, strict=True) for row in range(each.rows)]
        self.chosen = [pick(row).token for pick, row in rows] if self.feeds(choices) else []
        return [self._taken(pick) for pick in picks]

    def _taken(self, pick: Pick) -> Pick:
        def taken(row: int) -> Chosen:
            self.events.append("take")
            return pick(row)

        return taken

    def feeds(self, choices: Sequence[Choice]) -> bool:
        """What depends on the history, or is more than a token, is the host's."""
        return all(
            not (each.request.sampling._penalized or each.request.sampling.bad_words or each.request.log_probs)
            for each in choices
        )

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """See Backend."""
        self._model.copy_kv(source, destination, tokens)


def scheduler(slots: int = 4, max_num_tokens: int = 64, **changes: Any) -> tuple[Scheduler, Feeding]:
    """A scheduler on the tiny model behind the fake, and the fake."""
    llama = tiny_llama.model(changes, slots)
    model = Feeding(llama)
    capacity = Capacity(max_num_tokens, slots, llama.config.max_position_embeddings)
    return Scheduler(model, capacity, llama.config.vocab_size), model
