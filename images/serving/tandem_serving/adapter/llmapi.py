"""The LLM-API model's side of Triton: its service from config.pbtxt, its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.adapter.responder import TritonResponder
from tandem_serving.llmapi import arguments, dry_run, outputs, settings
from tandem_serving.llmapi.chunks import LlmApiChunk
from tandem_serving.llmapi.engine import TensorRtLlmEngine
from tandem_serving.llmapi.request import Codec, Features, LlmApiParser
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

    Raises settings, arguments and checkpoint errors, and ArgumentsRefused.
    """
    config = settings.read(parameters)
    llm_arguments = arguments.read(config.llm_args_path)
    limits = arguments.limits(llm_arguments, config.llm_package)
    features = _features(llm_arguments, config)
    speculates = bool(llm_arguments.get("speculative_config"))
    if config.drafter:
        drafter = arguments.load_drafter(config.drafter, config.drafter_path)
        manager = None
        if config.resource_manager:
            manager = arguments.load_drafter(config.resource_manager, config.drafter_path, "resource manager")
        llm_arguments = arguments.with_drafter(llm_arguments, drafter, manager)
    dry_run.before_loading(llm_arguments, config.llm_package)
    engine = TensorRtLlmEngine(llm_arguments, config.llm_package)
    options = LlmApiOptions(config.request_timeout, config.running, config.waiting, speculates, config.canary_seconds)
    folders = [Path(llm_arguments[name]) for name in ("model", "tokenizer") if llm_arguments.get(name)]
    features = replace(features, end_ids=frozenset(_end_ids(folders, engine.codec)))
    service = LlmApiService(engine, LlmApiParser(engine.codec, limits, features), options)
    service.guard()
    return service


def _end_ids(folders: list[Path], codec: Codec) -> list[int]:
    def id_of(name: str) -> int | None:
        return next(iter(codec.special([name])), None)

    return checkpoint.end_ids(folders, id_of, lambda token: not codec.decode([token])).all


def _features(llm_arguments: Mapping[str, Any], config: settings.LlmApiSettings) -> Features:
    lora = llm_arguments.get("lora_config") or {}
    return Features(
        guided_decoding=bool(llm_arguments.get("guided_decoding_backend")),
        lora_dirs=tuple(Path(folder).resolve() for folder in lora.get("lora_dir") or ()),
        running=config.running,
        waiting=config.waiting,
        refused=config.refused,
    )
