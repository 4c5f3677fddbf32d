"""A request as vLLM's `SamplingParams`. Pure but for `params`, which imports vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_serving.llmapi.request import Guide, LlmApiPrompt, LlmApiRequest, greedy

GUIDES = {"json_schema": "json", "regex": "regex", "ebnf_grammar": "grammar", "structural_tag": "structural_tag"}
"""Fields of StructuredOutputsParams by the guides that requests name; of `json` it is `json_object`."""
MOST_SEED = (1 << 63) - 1
"""torch's generators take no more: of a larger seed the upper bit is left out."""
SAME = (
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def params(prompt: LlmApiPrompt, request: LlmApiRequest) -> Any:
    """SamplingParams. Raises what vLLM raises for values that it does not take."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    made = fields(prompt, request)
    if prompt.guide:
        made["structured_outputs"] = StructuredOutputsParams(**guided(prompt.guide))
    kind = RequestOutputKind.DELTA if prompt.best_of == 1 else RequestOutputKind.FINAL_ONLY
    return SamplingParams(**made, output_kind=kind)


def fields(prompt: LlmApiPrompt, request: LlmApiRequest) -> dict[str, Any]:
    """The request's parameters by the names of SamplingParams, but for its guide.

    What is not sent means what it means to all engines: greedy without temperature, top_p and top_k (vLLM would take
    temperature 1). Text is made and cut outside: vLLM gets no stop words, and returns ids.
    """
    return {
        **{name: prompt.sampling[name] for name in SAME if name in prompt.sampling},
        **_drawn(prompt.sampling),
        **({"bad_words": list(prompt.sampling["bad"])} if "bad" in prompt.sampling else {}),
        "n": 1 if greedy(prompt.sampling) else prompt.best_of,  # all of them would be the same
        "stop_token_ids": sorted({*prompt.end_ids, *prompt.stop_ids}),
        "logprobs": 0 if request.cumulative_logprob or request.log_probs or prompt.best_of > 1 else None,
        "prompt_logprobs": 0 if request.prompt_log_probs else None,
        "detokenize": False,
    }


def _drawn(sampling: Mapping[str, Any]) -> dict[str, Any]:
    if greedy(sampling):
        return {"temperature": 0.0}
    made = {name: sampling[name] for name in ("temperature", "top_p", "top_k") if name in sampling}
    return {**made, **({"seed": int(sampling["seed"]) & MOST_SEED} if "seed" in sampling else {})}


def guided(guide: Guide) -> dict[str, Any]:
    """Fields of StructuredOutputsParams."""
    return {"json_object": True} if guide.kind == "json" else {GUIDES[guide.kind]: guide.text}
