"""Cut prompts out of the held-out files: for evaluate.py, and prompts.jsonl for tests."""

import argparse
import json
import random
from pathlib import Path
from typing import Any

from prepare import SPLITS
from tokenizers import Tokenizer

LENGTHS = (50, 300)
OF_EACH_SPLIT = 20


def held_out(data: Path) -> dict[str, list[dict[str, str]]]:
    """Return the held-out documents of prepare.py by split."""
    found: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS[1:]}
    with (data / "heldout.jsonl").open() as file:
        for line in file:
            document = json.loads(line)
            found[document["split"]].append(document)
    return found


def cut_prompts(documents: list[dict[str, str]], tokenizer: Tokenizer, count: int, seed: int) -> list[dict[str, Any]]:
    """Cut up to `count` prompts of LENGTHS tokens at arbitrary places, each of another file."""
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    for document in chance.sample(documents, len(documents)):
        ids = tokenizer.encode(document["text"]).ids
        length = chance.randint(*LENGTHS)
        start = chance.randint(0, max(0, len(ids) - length))
        text = tokenizer.decode(ids[start : start + length])
        # A cut inside a character of several bytes cannot be written as text.
        if len(ids) > length and "\ufffd" not in text and len(found) < count:
            origin = {key: document[key] for key in ("package", "version", "licence", "path", "split")}
            found.append(origin | {"prompt": text})
    return found


def main() -> None:
    """Write prompts.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of prepare.py")
    parser.add_argument("--output", type=Path, required=True, help="prompts.jsonl")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer.json"))
    with arguments.output.open("w") as file:
        for documents in held_out(arguments.data).values():
            for prompt in cut_prompts(documents, tokenizer, OF_EACH_SPLIT, seed=1):
                file.write(json.dumps(prompt, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
