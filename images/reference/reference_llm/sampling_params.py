"""Sampling parameters and guides: the fields that Tandem uses, with TensorRT-LLM's defaults and checks."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    """A guide for the text. The reference engine has none: a request with one is refused."""

    json: str | dict[str, object] | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    """How to sample."""

    max_tokens: int = 32
    bad: str | list[str] | None = None
    best_of: int | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_p: float | None = None
    logprobs: int | None = None
    exclude_input_from_output: bool = True
    return_perf_metrics: bool = False
    guided_decoding: GuidedDecodingParams | None = None
    ignore_eos: bool = False
    detokenize: bool = True

    def __post_init__(self) -> None:
        greedy = self.top_k in (None, 1) and self.top_p in (None, 0.0)
        if (self.best_of or 1) > 1 and greedy:
            raise ValueError(f"Greedy decoding in the LLM API does not allow multiple returns, got {self.best_of}.")
