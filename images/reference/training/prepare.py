"""Train the tokenizer on the collected text and turn the text into token arrays.

Reads corpus.jsonl.xz (collect.py) and writes tokenizer.json and tokenizer_config.json (as the models
ship them), one uint16 array of tokens per split, each document preceded by the end-of-text token, and
heldout.jsonl (the held-out documents, for evaluate.py).
"""

import argparse
import itertools
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
SPLITS = ("train", "heldout-file", "heldout-package")
VOCABULARY = 2048
CONTEXT = 2048
SAMPLE_CHARS = 60_000_000
# A newline and a line's indentation are pieces of their own, so that a prompt may end after either and be
# tokenized as the same text inside a file was.
LINES = Regex(r"\n|(?<![^\n]) +")


def read(corpus: Path) -> dict[str, list[dict[str, str]]]:
    """Return the documents of each split, in an order shuffled with a fixed seed."""
    found: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    with lzma.open(corpus, "rt") as file:
        for line in file:
            document = json.loads(line)
            found[document["split"]].append(document)
    for documents in found.values():
        random.Random(0).shuffle(documents)
    return found


def sample(documents: list[dict[str, str]], chars: int) -> Iterator[str]:
    """Yield texts until `chars` characters are reached."""
    sizes = itertools.accumulate(len(d["text"]) for d in documents)
    return (d["text"] for d, size in zip(documents, sizes, strict=True) if size <= chars)


def train_tokenizer(texts: Iterator[str]) -> Tokenizer:
    """Train byte-level BPE; token 0 is the end of text, the next 256 are the bytes."""
    tokenizer = Tokenizer(models.BPE())
    lines = pre_tokenizers.Split(LINES, behavior="isolated")
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([lines, words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[dict[str, str]]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Return all documents as one array, the end-of-text token (0) before each.

    Without their last newline: after a newline more text follows, so a prompt that ends with one is not
    taken for a finished file.
    """
    arrays = []
    for batch in itertools.batched(documents, 1024):
        for encoding in tokenizer.encode_batch_fast([d["text"].rstrip() for d in batch]):
            arrays += [np.zeros(1, np.uint16), np.array(encoding.ids, np.uint16)]
    return np.concatenate(arrays)


def tokenizer_config() -> dict[str, Any]:
    """Return tokenizer_config.json: no token is added to a prompt."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }


def main() -> None:
    """Write tokenizer and arrays into the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    documents = read(arguments.corpus)
    tokenizer = train_tokenizer(sample(documents["train"], SAMPLE_CHARS))
    tokenizer.save(str(arguments.output / "tokenizer.json"))
    config = json.dumps(tokenizer_config(), indent=2) + "\n"
    (arguments.output / "tokenizer_config.json").write_text(config)
    for split in SPLITS:
        tokens = encode(tokenizer, documents[split])
        np.save(arguments.output / f"{split}.npy", tokens)
        chars = sum(len(d["text"]) for d in documents[split])
        print(
            f"{split}: {len(tokens) / 1e6:.2f} M tokens, {chars / len(tokens):.2f} characters each",
            flush=True,
        )
    with (arguments.output / "heldout.jsonl").open("w") as file:
        file.writelines(json.dumps(d) + "\n" for split in SPLITS[1:] for d in documents[split])


if __name__ == "__main__":
    main()
