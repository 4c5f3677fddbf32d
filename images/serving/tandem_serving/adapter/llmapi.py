"""The LLM-API model's side of Triton: its service from config.pbtxt, its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.adapter.responder import TritonResponder
from tandem_serving.llmapi import arguments, dry_run, engines, outputs, settings
from tandem_serving.llmapi.chunks import LlmApiChunk
from tandem_serving.llmapi.engine import EngineKind
from tandem_serving.llmapi.request import Codec, LlmApiParser
from tandem_serving.llmapi.service import LlmApiService
from tandem_serving.llmapi.tasks import LlmApiOptions
from tandem_serving.requests.tensors import Array


class LlmApiResponder(TritonResponder[LlmApiChunk]):
    """Sends chunks as [1, ...] tensors, of which upstream's model knows the first dimension only."""

    def arrays(self, chunk: LlmApiChunk) -> dict[str, Array]:
        """A chunk's outputs."""
        return outputs.arrays(chunk)


def start_service(parameters: Mapping[str, str]) -> LlmApiService:
    """Start the engine that a model configuration describes.

    Raises settings, arguments and checkpoint errors, UnknownEngineError and ArgumentsRefused.
    """
    config = settings.read(parameters)
    kind = engines.find(config.engine)
    given = arguments.read(config.llm_args_path)
    limits, features = kind.limits(given), kind.features(given)
    if config.drafter:
        given = _with_drafter(kind, given, config)
    dry_run.before_loading(kind, given)
    engine = kind.load(given)
    features = replace(
        features,
        running=config.running,
        waiting=config.waiting,
        refused=config.refused,
        end_ids=frozenset(_end_ids(given, engine.codec)),
    )
    options = LlmApiOptions(
        config.request_timeout, config.running, config.waiting, kind.reports_drafts(given), config.canary_seconds
    )
    service = LlmApiService(engine, LlmApiParser(engine.codec, limits, features), options)
    service.guard()
    return service


def _with_drafter(kind: EngineKind, given: Mapping[str, Any], config: settings.LlmApiSettings) -> dict[str, Any]:
    drafter = arguments.load_drafter(config.drafter, config.drafter_path)
    manager = None
    if config.resource_manager:
        manager = arguments.load_drafter(config.resource_manager, config.drafter_path, "resource manager")
    return kind.with_drafter(given, drafter, manager)


def _end_ids(given: Mapping[str, Any], codec: Codec) -> list[int]:
    folders = [Path(given[name]) for name in ("model", "tokenizer") if given.get(name)]

    def id_of(name: str) -> int | None:
        return next(iter(codec.special([name])), None)

    return checkpoint.end_ids(folders, id_of, lambda token: not codec.decode([token])).all
