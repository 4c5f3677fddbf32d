"""Prompts of a length: texts of a file, each with others before it until it is long enough."""

import argparse
import gzip
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem_serving.requests.tokenizer import Tokenizer

BETWEEN = "\n\n\n"
ORDERS, WINDOW_PROMPTS = 6, 240  # new prompts are so many times the file's; a window uses so many at most


@dataclass(frozen=True)
class Prompt:
    """A text and its tokens."""

    text: str
    ids: tuple[int, ...]


def texts(path: Path) -> list[str]:
    """The field `prompt` of each line of a JSON-lines file, which may be packed by gzip."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line)["prompt"] for line in data.decode().splitlines()]


def of_length(given: list[str], tokenizer: Tokenizer, tokens: int) -> list[Prompt]:
    """As many prompts as texts: the last `tokens` of a text behind those that stand before it (0: the texts alone).

    Where a token began inside a character the prompt begins behind it, so some are a token shorter.
    """
    made = []
    lengths = [len(tokenizer.encode(text)) for text in given]
    for index in range(len(given)):
        texts, known = 1, lengths[index]
        while known < tokens:
            known, texts = known + lengths[(index - texts) % len(given)], texts + 1
        text = BETWEEN.join(given[(index - i) % len(given)] for i in reversed(range(texts)))
        ids: list[int] = tokenizer.encode(text)  # at least `known`, with what is between them
        text = tokenizer.decode(ids[-tokens:]).lstrip("\ufffd") if tokens else given[index]
        made.append(Prompt(text, tuple(tokenizer.encode(text))))
    return made


def in_other_orders(given: list[str], tokenizer: Tokenizer, tokens: int, times: int) -> list[Prompt]:
    """So many times as many, each text behind others: none begins as another does, but for texts of that length."""
    rng = random.Random(1)
    orders = (rng.sample(given, len(given)) for _ in range(times))
    made = [prompt for order in orders for prompt in of_length(order, tokenizer, tokens)]
    return list({prompt.text: prompt for prompt in made}.values())


def sources(
    options: argparse.Namespace, tokenizer: Tokenizer, *, new_ones: bool
) -> dict[bool, Iterator[list[Prompt]]]:
    """Of each window, by whether they are new: a window's new ones are forgotten before they come again.

    Of the command line: the file `prompts`, tokens of each (`context`), and how many are `known`.
    """
    given = texts(options.prompts)
    known = of_length(given, tokenizer, options.context)[: options.known]
    new = in_other_orders(given, tokenizer, options.context, ORDERS if new_ones else 0)
    starts = itertools.cycle(range(0, max(1, len(new) - WINDOW_PROMPTS), WINDOW_PROMPTS))
    turns = (new[start:] + new[:start] for start in starts)
    return {False: itertools.repeat(known), True: turns if new else iter(())}
