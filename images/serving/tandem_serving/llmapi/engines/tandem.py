"""Tandem's own engine, by its package `reference_llm`, which has TensorRT-LLM's modules and signatures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving.checkpoint import ModelLimits, read_limits
from tandem_serving.llmapi.engine import EngineKind
from tandem_serving.llmapi.engines.tensorrt_llm import TensorRtLlm
from tandem_serving.llmapi.statistics import FAMILIES


class Tandem(TensorRtLlm):
    """What of Tandem's engine is not TensorRT-LLM's."""

    def limits(self, arguments: Mapping[str, Any]) -> ModelLimits:
        """As EngineKind says: `max_seq_len` is a bound, which may lie above the model's own."""
        return read_limits(Path(arguments["model"])).at_most(int(arguments.get("max_seq_len") or 0))

    def missing_code(self, folders: Mapping[str, Path], arguments: Mapping[str, Any]) -> str:
        """As EngineKind says: it runs no code of checkpoints."""
        return ""


ENGINE: EngineKind = Tandem("Tandem", "reference_llm", FAMILIES)
