import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tandem_serving import rounds
from tandem_serving.request import Limits, Parser
from tandem_serving.runner import Engine
from tandem_serving.schedule import Lane
from tandem_serving.service import Options, Service
from tandem_serving.tokenizer import Tokenizer
from unit.serving.services import NO_TENSORS, MockEngines, Sink, Start
from unit.serving.steady import Steady

LIMITS: dict[str, Any] = {
    "running": 64,
    "waiting": 1024,
    "rows": 64,
    "draft_timeout": 30,
    "ahead": False,
    "queue_timeout": math.inf,
}
TEXT = ["def add(a, b):\n    return a + b\n", "for i in range(10):\n    print(i)\n", "class Tree:\n    pass\n"]


def byte_level(vocab_size: int = 300) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer with an end token, trained on a few lines."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
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


CONFIG = {"vocab_size": 300, "max_position_embeddings": 128, "eos_token_id": 0, "architectures": ["Llama"]}

ModelFolder = Callable[..., Path]


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    """Makes a model folder (without weights); keyword arguments change its config.json."""

    def make(name: str = "model", tokenizer: tokenizers.Tokenizer | None = None, **config: object) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG | config))
        (tokenizer or byte_level()).save(str(folder / "tokenizer.json"))
        return folder

    return make


@pytest.fixture
def tokenizer(model_folder: ModelFolder) -> Tokenizer:
    return Tokenizer(model_folder("tokenizer"))


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def start(tokenizer: Tokenizer, sink: Sink) -> Iterator[Start]:
    """Starts services, with their watchdogs, and closes them."""
    services: list[Service] = []

    def make(engines: MockEngines, **options: Any) -> Service:
        parser = Parser(tokenizer, Limits(128, 4, 300))
        limits = {name: options.pop(name, value) for name, value in LIMITS.items()}
        chosen = options.pop("policy", Steady(4, separate_devices=True))
        settings = Options(**{"request_timeout": 50, "limits": rounds.Limits(**limits), **options})
        both: dict[Lane, Engine] = {"target": engines.target, "draft": engines.draft}
        services.append(Service(parser, tokenizer, both, lambda prompt, request: NO_TENSORS, chosen, settings))
        threading.Thread(target=services[-1].watch, args=(sink,), daemon=True).start()
        return services[-1]

    yield make
    for service in services:
        service.close()
