"""A request as TensorRT-LLM's `SamplingParams`."""

from __future__ import annotations

from typing import Any

from tandem_serving.llmapi.engines.tensorrt_llm import dialect
from tandem_serving.llmapi.request import Guide, LlmApiPrompt, LlmApiRequest

GUIDES = {
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
    "structural_tag": "structural_tag",
}
"""Fields of GuidedDecodingParams by the guides that requests name; of `json` it is `json_object`."""


def params(package: str, prompt: LlmApiPrompt, request: LlmApiRequest) -> Any:
    """SamplingParams of the package. Raises what it raises for values that it does not take."""
    guide = dialect.find(package, "GuidedDecodingParams", "llmapi") if prompt.guide else None
    return dialect.find(package, "SamplingParams")(
        **fields(prompt),
        detokenize=False,
        exclude_input_from_output=True,
        return_perf_metrics=True,
        # The best of several is the most likely one.
        logprobs=1 if request.cumulative_logprob or request.log_probs or prompt.best_of > 1 else None,
        guided_decoding=guide(**guided(prompt.guide)) if guide and prompt.guide else None,
    )


def fields(prompt: LlmApiPrompt) -> dict[str, Any]:
    """The request's parameters: their names are those of SamplingParams."""
    sampling = dict(prompt.sampling)
    if sampling.get("temperature") == 0:  # greedy, which not every version takes for it
        del sampling["temperature"]
        sampling["top_k"] = 1
    return sampling


def guided(guide: Guide) -> dict[str, Any]:
    """Fields of GuidedDecodingParams."""
    return {"json_object": True} if guide.kind == "json" else {GUIDES[guide.kind]: guide.text}
