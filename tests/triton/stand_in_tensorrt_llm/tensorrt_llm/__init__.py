"""A stand-in for the package `tensorrt_llm`: `reference_llm`, with what tests need beside it.

Text is a real model's. Speculation is made up: with a `speculative_config` each iteration gives max_draft_len
tokens beside the target's own, as if a draft were always right; any decoding type, guide and adapter is taken. The
environment variable STAND_IN_VERSION ("1.2", the default, or "1.3") says which version's habits it has. Faults on
demand, by seed: see `faults`.
"""

from reference_llm.sampling_params import SamplingParams

from .llmapi.llm import LLM

__all__ = ["LLM", "SamplingParams"]
