"""Tandem: a Kubernetes operator for speculative decoding on NVIDIA Triton and TensorRT-LLM."""

__version__ = "0.1.0"
"""The one place where the version is written; `make generate` copies it to the chart."""
