"""What the scheduler needs of a model: `model` has it in numpy on the CPU, `torch_backend` on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from reference_engine.choice import Choice, Pick

IntArray = npt.NDArray[np.int32]
L = TypeVar("L")


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of one sequence: int32 `tokens`, the first at position `start` of `slot`.

    The keys and values of all earlier positions are in the slot. Logits are wanted for the last `logits`. A token
    may be `of_row` of the last pass.
    """

    slot: int
    start: int
    tokens: IntArray
    logits: int


def of_row(row: int) -> int:
    """The token that was chosen for a row of the last pass's logits, whichever it is: below 0, unlike all others."""
    return -1 - row


class Backend(Protocol[L]):
    """A model with its KV cache by slots; `L` is its logits, wherever it keeps them. Not thread-safe."""

    def forward(self, segments: Sequence[Segment]) -> L:
        """Logits of the rows that the segments want, one segment after the other; valid until the next call.

        One segment a slot at most; `max_num_tokens` tokens in all at most.
        """
        ...

    def choose(self, logits: L, choices: Sequence[Choice]) -> Sequence[Pick]:
        """Tokens from `forward`'s logits: a choice for each segment that wants any, in the segments' order.

        May return while the model computes: the first call of a pick waits.
        """
        ...

    def feeds(self, choices: Sequence[Choice]) -> bool:
        """Whether the next pass may be given before these picks are called, with tokens `of_row` of this one."""
        ...

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """Copy the keys and values of a slot's first tokens to another slot."""
        ...
