"""Triton entry of `tensorrt_llm_bls`: one response for unary clients, made by the speculative BLS."""

from tandem_serving.adapter.unary import Unary as TritonPythonModel

__all__ = ["TritonPythonModel"]
