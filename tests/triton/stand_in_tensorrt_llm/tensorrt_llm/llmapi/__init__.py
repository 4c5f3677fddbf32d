"""The LLM API."""

from reference_llm.sampling_params import GuidedDecodingParams, SamplingParams

from .llm import LLM

__all__ = ["LLM", "GuidedDecodingParams", "SamplingParams"]
