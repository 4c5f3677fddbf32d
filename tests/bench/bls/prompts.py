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


@dataclass(frozen=True)
class Prompt:
    """A text, the number of its tokens, and its key in the made-up model."""

    text: str
    length: int
    key: int


def make(seed: int, count: int, group: int = 0, groups: int = 1) -> list[Prompt]:
    """Prompts of a run: other seeds give others. Of `groups` acceptances only those of `group`."""
    mine = (prompt for prompt in _prompts(seed) if prompt.key % groups == group)
    return list(itertools.islice(mine, count))


def _prompts(seed: int) -> Iterator[Prompt]:
    tokenizer = Tokenizer(PAIR / "target")
    rng = random.Random(seed)
    while True:
        text = " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(rng.randint(14, 28)))
        ids = tokenizer.encode(text)
        if SHORTEST <= len(ids) <= LONGEST:
            key = tokens.keys(np.array([ids], np.int32))
            yield Prompt(text, len(ids), int(key[0]))
