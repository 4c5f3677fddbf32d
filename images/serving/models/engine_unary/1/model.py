"""Triton entry of `tensorrt_llm` and `tensorrt_llm_draft` of decoupled engines: one response for clients."""

from tandem_serving.adapter.engine_unary import EngineUnary as TritonPythonModel

__all__ = ["TritonPythonModel"]
