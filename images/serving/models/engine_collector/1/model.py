"""Triton entry of an engine's collector: all rows of a call in one response, from an engine that is decoupled."""

from tandem_serving.adapter.collector import Collector as TritonPythonModel

__all__ = ["TritonPythonModel"]
