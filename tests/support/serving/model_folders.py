"""Model folders and tokenizers that are made in a moment."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TEXT = ["def add(a, b):\n    return a + b\n", "for i in range(10):\n    print(i)\n", "class Tree:\n    pass\n"]
CONFIG = {"vocab_size": 300, "max_position_embeddings": 128, "eos_token_id": 0, "architectures": ["Llama"]}

ModelFolder = Callable[..., Path]


def byte_level(vocab_size: int = 300, special: Sequence[str] = ("<|endoftext|>",)) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer with an end token, trained on a few lines."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 10, trainer)
    return tokenizer


def byte_fallback() -> tokenizers.Tokenizer:
    """A sentencepiece-like tokenizer: leading-space marks, unknown characters as byte tokens."""
    words = ["<unk>", "</s>", "▁a", "▁the", "▁cat", "s", "▁"]
    vocab = {word: i for i, word in enumerate(words)}
    vocab |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def write_model_folder(folder: Path, tokenizer: tokenizers.Tokenizer | None = None, **config: object) -> Path:
    """A model folder without weights; keyword arguments change its config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (tokenizer or byte_level()).save(str(folder / "tokenizer.json"))
    return folder
