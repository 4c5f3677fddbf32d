"""The LLM API."""

from ..sampling_params import GuidedDecodingParams, SamplingParams
from .llm import LLM

__all__ = ["LLM", "GuidedDecodingParams", "SamplingParams"]
