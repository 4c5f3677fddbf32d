"""Triton entry of `tensorrt_llm` in mode LLMAPI: one response for unary clients, made by the LLM-API model."""

from tandem_serving.adapter.unary import Unary as TritonPythonModel

__all__ = ["TritonPythonModel"]
