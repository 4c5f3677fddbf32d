"""The kinds of engines that the LLM-API model runs, a module each: it decides everything that differs between them
(`llmapi.engine.EngineKind`, and the `LlmApiEngine` that it loads)."""

from __future__ import annotations

import importlib

from tandem_serving.llmapi.engine import EngineKind

_HERE = __name__
ENGINES: dict[str, str] = {
    "TensorRT-LLM": f"{_HERE}.tensorrt_llm",
    "Tandem": f"{_HERE}.tandem",
    "vLLM": f"{_HERE}.vllm",
}
"""By the kind that profiles name: the module whose ENGINE is an EngineKind. It is imported when it is asked for."""


class UnknownEngineError(Exception):
    """There is no engine of this kind; the message names those that there are."""


def find(kind: str) -> EngineKind:
    """The engine of a kind. Raises UnknownEngineError."""
    if kind not in ENGINES:
        known = ", ".join(ENGINES)
        raise UnknownEngineError(f"the engine is {kind!r}, which this image does not know: write one of {known}")
    found: EngineKind = importlib.import_module(ENGINES[kind]).ENGINE
    return found
