"""What is compared: ways to serve, and draft lengths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WAYS: Mapping[str, Mapping[str, Any]] = {
    "fixed": {},
    "adaptive": {"adaptive": True},
    "batches": {"rounds": False},
    "single": {"rounds": False, "max_engine_rows": 1},
    "sequential": {"rounds": False, "max_engine_rows": 1, "max_running_sequences": 1},
}
"""What each BLS has other than the operator renders it: draft lengths that follow load and acceptance; no rounds in
the server; engine calls of one sequence each; one sequence at a time, as upstream's BLS with one instance."""

ENGINE = "engine"
"""No BLS: one streaming call of the target a request."""
LLM_API = "llm_api"
"""Mode LLMAPI: both models in one process, `draft_len` by the engine's configuration."""


_MODELS = {ENGINE: "tensorrt_llm_engine", LLM_API: "tensorrt_llm_stream"}


def bls(way: str) -> str:
    """The Triton model of a way: the adaptive one has the name that the OpenAI endpoint calls."""
    return "speculative_bls" if way == "adaptive" else f"bls_{way}"


@dataclass(frozen=True)
class Case:
    """`way`: of WAYS, ENGINE or LLM_API. `draft_len` 0: the target alone; None: the most that the BLS may draft.

    `most`: streams at which it is run at most. `new_prompts`: none comes again before it is forgotten; else they are
    in the KV cache.
    """

    name: str
    way: str
    draft_len: int | None = None
    sampled: bool = False
    most: int = 64
    new_prompts: bool = False

    @property
    def model(self) -> str:
        """The Triton model that clients call."""
        return _MODELS.get(self.way) or bls(self.way)

    @property
    def base(self) -> str:
        """The case of the target alone to compare with."""
        return "alone" + ", sampled" * self.sampled + ", new prompts" * self.new_prompts

    @property
    def together(self) -> bool:
        """Whether all streams are rows of the same calls, so that a round is steps of so many rows."""
        return self.way in ("fixed", "adaptive", "batches", LLM_API)


LONGEST = 7  # 8 tokens to verify fill a tile of the attention kernel: more take two

CASES = {
    case.name: case
    for case in (
        Case("alone", "fixed", 0),
        Case("k=4", "fixed", 4),
        Case("LLM API, k=4", LLM_API, 4),
        Case("adaptive", "adaptive"),
        Case("k=7", "fixed", 7),
        Case("LLM API, k=7", LLM_API, 7),
        Case("alone, new prompts", "fixed", 0, new_prompts=True),
        Case("k=4, new prompts", "fixed", 4, new_prompts=True),
        Case("LLM API, k=4, new prompts", LLM_API, 4, new_prompts=True),
        Case("adaptive, new prompts", "adaptive", new_prompts=True),
        Case("engine", ENGINE, 0),
        Case("batches, k=4", "batches", 4),
        Case("sequential, k=4", "sequential", 4, most=16),  # more would wait for minutes
        *(Case(f"k={k}", "fixed", k) for k in (2, 1, 6)),
        Case("alone, sampled", "fixed", 0, sampled=True),
        Case("k=4, sampled", "fixed", 4, sampled=True),
        Case("LLM API, k=4, sampled", LLM_API, 4, sampled=True),
        Case("adaptive, sampled", "adaptive", sampled=True),
        Case("single, k=4", "single", 4, most=16),
        Case("k=7, new prompts", "fixed", 7, new_prompts=True),
    )
}
"""In this order: where the time is over, what matters most was run."""
SAMPLING = {"temperature": 0.8, "top_p": 0.95}
