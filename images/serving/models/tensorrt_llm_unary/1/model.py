"""Triton entry of `tensorrt_llm_unary`: one response for unary clients, made by the LLM-API model."""

from tandem_serving.adapter.unary import Unary as TritonPythonModel

__all__ = ["TritonPythonModel"]
