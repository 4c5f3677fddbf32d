"""Tandem: a Kubernetes operator for speculative decoding on NVIDIA Triton and TensorRT-LLM."""

__version__ = "0.1.0"
