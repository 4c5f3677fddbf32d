"""Prompts of the benchmark: texts of random words, all different, with their tokens' keys."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.bls import tokens
from tandem_serving.requests.tokenizer import Tokenizer
from triton.bls_client import PAIR

SHORTEST, LONGEST = 64, 128  # tokens
WORD = 5.04  # tokens of a word, on average
SPREAD = 0.05  # share by which lengths differ from one that was asked for


@dataclass(frozen=True)
class Prompt:
    """A text, its tokens int32[n], and its key in the made-up model."""

    text: str
    ids: tokens.Ids
    key: int

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.ids)


@dataclass(frozen=True)
class Kind:
    """Which prompts: of `groups` acceptances only those of `group`; of about `length` tokens, 0: 64 to 128."""

    group: int = 0
    groups: int = 1
    length: int = 0


ANY = Kind()


def make(seed: int, count: int, kind: Kind = ANY) -> list[Prompt]:
    """Prompts of a run: other seeds give others."""
    mine = (prompt for prompt in _prompts(seed, kind.length) if prompt.key % kind.groups == kind.group)
    return list(itertools.islice(mine, count))


def _prompts(seed: int, length: int) -> Iterator[Prompt]:
    tokenizer = Tokenizer(PAIR / "target")
    rng = random.Random(seed)
    shortest, longest = (int(length * (1 - SPREAD)), int(length * (1 + SPREAD))) if length else (SHORTEST, LONGEST)
    fewest, most = (int(shortest / WORD), int(longest / WORD)) if length else (14, 28)
    while True:
        words = ("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(rng.randint(fewest, most)))
        text = " ".join(words)
        ids = np.array(tokenizer.encode(text), np.int32)
        if shortest <= len(ids) <= longest:
            yield Prompt(text, ids, int(tokens.keys(ids[None])[0]))
