"""A stand-in for the package `tensorrt_llm`: the part of its LLM API that Tandem calls, over the reference engine.

Text is a real model's. Speculation is made up: with a `speculative_config` each iteration gives max_draft_len
tokens beside the target's own, as if a draft were always right. The environment variable STAND_IN_VERSION ("1.2",
the default, or "1.3") says which version's habits it has. Faults on demand, by seed: see `faults`.
"""

from .llmapi.llm import LLM
from .sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
