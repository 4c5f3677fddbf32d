"""TensorRT-LLM's LLM API over the reference engine, for machines without a GPU: the part that Tandem calls.

Names, modules and signatures are those of `tensorrt_llm` 1.3; what the engine cannot do is refused by name.

`llmapi.llm` is the entry, `llmapi.llm_args` its arguments, `llmapi.speculation` drafts and has them verified,
`llmapi.drafters` guesses (a draft model, or n-grams of the text so far), `executor.result` is what a request gives.
"""

import reference_engine  # sets up OpenBLAS, if numpy is not loaded yet

from .llmapi.llm import LLM
from .sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "reference_engine"]
