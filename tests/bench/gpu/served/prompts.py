"""Prompts of a length: texts of a file, each with others before it until it is long enough."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from tandem_serving.requests.tokenizer import Tokenizer

BETWEEN = "\n\n\n"


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
    for index in range(len(given)):
        ids: list[int] = tokenizer.encode(given[index])
        before = 1
        while len(ids) < tokens:
            text = BETWEEN.join(given[index - i] for i in reversed(range(before + 1)))
            ids, before = tokenizer.encode(text), before + 1
        text = tokenizer.decode(ids[-tokens:]).lstrip("\ufffd") if tokens else given[index]
        made.append(Prompt(text, tuple(tokenizer.encode(text))))
    return made
