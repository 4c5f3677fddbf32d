"""Whether tokens with speculation are those of the target alone. Pure.

An engine whose rounding depends on the shapes of its batches may choose another token where the two likeliest are
nearly tied: a first difference counts as a near-tie where their logits are within `EPSILON`. Engines rarely hand
logits over, so the gap is measured by samples of the target alone: of two tokens (top-k 2) at temperature T the
second is drawn with p2 / p1 = exp(-gap / T), hence gap = T ln(n1 / n2).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem.client.generate.figures import Completion, first_difference

EPSILON = 0.25
"""Of logits: two steps of bfloat16 (8 bits of mantissa) at the size that the largest logits have, 16 to 32."""
TIE_TEMPERATURE = EPSILON / 2
TIE_SAMPLES = 32
FEWEST_SAMPLES = 8
"""Samples that must reach the position: less say nothing of its gap."""
SHOWN_TOKENS = 8
SHOWN_CHARACTERS = 60

Ids = tuple[int, ...]


def token(ids: Ids, position: int) -> int | None:
    """The token at a position; None where the answer ends there."""
    return ids[position] if position < len(ids) else None


@dataclass(frozen=True)
class Tie:
    """How the samples of the target alone choose at a position: `expected` times the one token, `got` times the
    other, of `reached` samples that agree with both up to there."""

    expected: int
    got: int
    reached: int

    @property
    def gap(self) -> float | None:
        """Logits by which the expected token is ahead, estimated; None: too few samples, or the other never came."""
        if self.reached < FEWEST_SAMPLES or not self.got:
            return None
        return TIE_TEMPERATURE * math.log(max(self.expected, 1) / self.got)

    @property
    def near(self) -> bool:
        """Whether both tokens are nearly tied."""
        return self.gap is not None and self.gap <= EPSILON


def tie(expected: Ids, got: Ids, position: int, samples: Sequence[Ids]) -> Tie:
    """Count how `samples` go on where `expected` and `got` part."""
    reached = [ids for ids in samples if ids[:position] == expected[:position]]
    chosen = Counter(token(ids, position) for ids in reached)
    return Tie(chosen[token(expected, position)], chosen[token(got, position)], len(reached))


def evidence(prompt: str, expected: Completion, got: Completion, position: int) -> dict[str, Any]:
    """The shortest that shows a difference, for the report."""
    cut = first_difference(expected.text, got.text) or 0
    start = max(0, cut - SHOWN_CHARACTERS // 3)
    shown = slice(start, start + SHOWN_CHARACTERS)
    tokens = slice(position, position + SHOWN_TOKENS)
    return {
        "prompt": short(prompt),
        "firstDifference": position,
        "expected": {"ids": list(expected.ids[tokens]), "text": expected.text[shown]},
        "got": {"ids": list(got.ids[tokens]), "text": got.text[shown]},
    }


def short(prompt: str) -> str:
    """A prompt for the report: of a long one its end."""
    most = 4 * SHOWN_CHARACTERS
    return prompt if len(prompt) <= most else f"[{len(prompt)} characters] ...{prompt[-most:]}"
