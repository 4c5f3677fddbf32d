"""The arguments of `LLM`: TensorRT-LLM's names, as far as the reference engine has a meaning for them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from reference_engine.engine import BACKENDS

PACKAGE = "reference_llm"


@dataclass(frozen=True, kw_only=True)
class SpeculativeConfig:
    """What all decoding types have. `draft_len_schedule` maps batch sizes to draft lengths.

    A step holds up to its batch size; above the last nothing is drafted.
    """

    max_draft_len: int
    max_concurrency: int | None = None
    draft_len_schedule: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        if self.max_draft_len < 1:
            raise ValueError(f"speculative_config.max_draft_len is {self.max_draft_len}: write 1 or more")

    def draft_len(self, sequences: int) -> int:
        """Draft tokens a pass while so many sequences run."""
        if self.max_concurrency and sequences > self.max_concurrency:
            return 0
        if self.draft_len_schedule is None:
            return self.max_draft_len
        steps = [(size, length) for size, length in self.draft_len_schedule.items() if sequences <= size]
        return min(steps)[1] if steps else 0


@dataclass(frozen=True, kw_only=True)
class DraftTargetConfig(SpeculativeConfig):
    """A draft model: a checkpoint's folder, with the target's vocabulary."""

    speculative_model: str


@dataclass(frozen=True, kw_only=True)
class NGramConfig(SpeculativeConfig):
    """N-grams of the text so far, of at most `max_matching_ngram_size` tokens; the oldest match, or the newest.

    `is_keep_all` and `is_public_pool` are about TensorRT-LLM's pool of matches. There is none here: the whole text
    of the sequence is searched, and that of no other.
    """

    max_matching_ngram_size: int = 2
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


CONFIGS: Mapping[str, type[SpeculativeConfig]] = {"Draft_Target": DraftTargetConfig, "NGram": NGramConfig}
"""By `decoding_type`."""

# Arguments with one value that the engine has; another is refused.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "tokenizer_mode": ("auto",),
    "skip_tokenizer_init": (False,),
    "trust_remote_code": (False,),
    "pipeline_parallel_size": (1,),
    "dtype": ("auto", "float32"),
    "revision": (None,),
    "tokenizer_revision": (None,),
    "disable_overlap_scheduler": (True, False),
}


class LlmArgs:
    """Checked arguments. `max_seq_len` 0: the model's own limit. `backend`: the engine's.

    Raises:
        TypeError: an argument that is not known, or one that is missing.
        ValueError: a value that the engine cannot do.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        tokenizer: str | Path | None = None,
        max_batch_size: int = 64,
        max_num_tokens: int = 512,
        max_seq_len: int | None = None,
        speculative_config: Mapping[str, Any] | None = None,
        enable_iter_perf_stats: bool = False,
        backend: str = BACKENDS[0],
        tensor_parallel_size: int = 1,
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if name not in _ONLY:
                raise TypeError(f"{name} is not an argument that {PACKAGE} knows: leave it out")
            if value not in _ONLY[name]:
                known = " or ".join(map(repr, _ONLY[name]))
                raise ValueError(f"{name} is {value!r}, and {PACKAGE} can do {known} only: write that")
        if backend not in BACKENDS:
            raise ValueError(f"backend is {backend!r}, and {PACKAGE} has {' and '.join(BACKENDS)}: write one of them")
        if tensor_parallel_size != 1 and (backend != "torch" or tensor_parallel_size < 1):
            raise ValueError(
                f"tensor_parallel_size is {tensor_parallel_size}, and backend {backend} can do 1: write 1"
            )
        self.model = Path(model)
        self.tensor_parallel_size = tensor_parallel_size
        self.backend = backend
        self.tokenizer = Path(tokenizer or model)
        self.max_batch_size = max_batch_size
        self.max_num_tokens = max_num_tokens
        self.max_seq_len = max_seq_len or 0
        self.enable_iter_perf_stats = enable_iter_perf_stats
        self.speculative_config = _speculative(speculative_config) if speculative_config else None


def _speculative(values: Mapping[str, Any]) -> SpeculativeConfig:
    given = dict(values)
    kind = given.pop("decoding_type", None)
    if kind not in CONFIGS:
        raise ValueError(f"speculative_config.decoding_type is {kind!r}: {PACKAGE} knows {', '.join(CONFIGS)}")
    config = CONFIGS[kind]
    known = {each.name: each for each in fields(config)}
    for name in given:
        if name not in known:
            raise TypeError(f"speculative_config.{name} is not a field of {kind} that {PACKAGE} knows: leave it out")
    for name in ("max_draft_len", "speculative_model"):
        if name in known and name not in given:
            raise TypeError(f"speculative_config.{name} is missing: {kind} needs it")
    return config(**given)
