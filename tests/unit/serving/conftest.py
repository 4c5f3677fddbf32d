import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from support.serving.bls import NO_TENSORS, MockEngines, Sink, Start
from support.serving.model_folders import ModelFolder, write_model_folder
from support.serving.steady import Steady
from tandem_serving.bls.batches import Route
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.request import BlsParser, RequestLimits
from tandem_serving.bls.runner import BlsEngine
from tandem_serving.bls.service import BlsOptions, BlsService
from tandem_serving.requests.tokenizer import Tokenizer

LIMITS: dict[str, Any] = {
    "running": 64,
    "waiting": 1024,
    "max_rows": 64,
    "draft_timeout": 30,
    "queue_timeout": math.inf,
}


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    """Makes a model folder (without weights); keyword arguments change its config.json."""

    def make(name: str = "model", tokenizer: tokenizers.Tokenizer | None = None, **config: object) -> Path:
        return write_model_folder(tmp_path / name, tokenizer, **config)

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
    services: list[BlsService] = []

    def make(engines: MockEngines, **options: Any) -> BlsService:
        parser = BlsParser(tokenizer, RequestLimits(128, 4, 300))
        limits = {name: options.pop(name, value) for name, value in LIMITS.items()}
        bind = options.pop("bind", lambda prompt, request: NO_TENSORS)
        chosen = options.pop("policy", Steady(4, separate_devices=True))
        settings = BlsOptions(**{"request_timeout": 50, "limits": RoundLimits(**limits), **options})
        both: dict[Route, BlsEngine] = {"target": engines.target, "draft": engines.draft}
        if engines.streams:
            both["stream"] = engines.streams
        services.append(BlsService(parser, tokenizer, both, bind, chosen, settings))
        threading.Thread(target=services[-1].watch, args=(sink,), daemon=True).start()
        return services[-1]

    yield make
    for service in services:
        service.close()
