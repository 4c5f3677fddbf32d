"""Which token comes next: TensorRT-LLM's sampling parameters, reproducible by seed and position.

Steps, in this order: embedding bias, temperature, repetition penalty, presence and frequency penalties
(over prompt and output, as TensorRT-LLM counts them), end_id suppressed below min_tokens, bad words; then
the highest logit (ties: the lowest id), or top-k, then top-p, then one draw. A draw depends on the
distribution, the seed and the token's absolute position alone.

A draw is a race: each id has a clock, an exponential number by seed and position, and the id with the largest
weight over clock wins; that is id i with probability w_i / sum(w). Draft and target with the same seed race by
the same clocks, so that similar distributions mostly choose the same token and a draft's tokens match more
often than by one common number (Daliri et al. 2024, https://arxiv.org/abs/2408.07978).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

Words = tuple[tuple[int, ...], ...]

_COLDEST = 1e-20  # below it the highest logit has all the weight as well, and the quotient would not be finite
_FEW = 64  # mostly enough for a nucleus: the rest is not sorted


class Stream(IntEnum):
    """What a random number is for: numbers of different streams are independent."""

    DRAW = 0
    ACCEPT = 1
    RESIDUAL = 2


@dataclass(frozen=True)
class SamplingParams:
    """Defaults are TensorRT-LLM's: without top_k and top_p, or with top_k 1 or temperature 0, greedy.

    `top_k` 0 and `top_p` 0 mean no limit by that rule. `bad_words` are token sequences whose last token is
    never chosen after the others. `embedding_bias` float32[vocabulary] is added to the logits.
    """

    top_k: int = 0
    top_p: float = 0.0
    temperature: float = 1.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    bad_words: Words = ()
    embedding_bias: FloatArray | None = None

    @property
    def greedy(self) -> bool:
        """Whether the highest logit wins."""
        return self.top_k == 1 or self.temperature == 0 or (self.top_k == 0 and self.top_p == 0)

    @property
    def plain(self) -> bool:
        """Whether the choice is the argmax of the raw logits, whatever the history."""
        return self.greedy and not (
            self.min_tokens or self.bad_words or self._penalized or self.embedding_bias is not None
        )

    @property
    def _penalized(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def process(logits: FloatArray, params: SamplingParams, history: IntArray, banned: Sequence[int]) -> FloatArray:
    """Logits float32[V] after bias, temperature, penalties and bans; a new array.

    `history` int32[n] is the sequence so far; `banned` are ids that may not come (end_id below min_tokens).
    """
    out = logits.copy()
    if params.embedding_bias is not None:
        out += params.embedding_bias
    if params.temperature not in (0, 1):
        out /= np.float32(max(params.temperature, _COLDEST))
    if params._penalized:
        _penalize(out, params, history)
    ids = [*banned, *_bad_ends(params.bad_words, history)]
    if ids:
        out[ids] = -np.inf
    if not np.isfinite(out.max()):  # a huge bias or penalty
        np.nan_to_num(out, copy=False, nan=-np.inf, posinf=float(np.finfo(np.float32).max), neginf=-np.inf)
    return out


def choose(logits: FloatArray, params: SamplingParams, position: int) -> int:
    """The token at absolute `position` for processed logits float32[V]."""
    if params.greedy:
        return int(logits.argmax())
    ids, weights = _nucleus(logits, params)
    clocks = _generator(params.seed, position, Stream.DRAW).standard_exponential(len(logits))[ids]
    return int(ids[np.argmax(weights / (clocks + np.finfo(np.float64).tiny))])


def probabilities(logits: FloatArray, params: SamplingParams) -> DoubleArray:
    """The distribution float64[V] that `choose` draws from (not greedy), for processed logits float32[V]."""
    ids, weights = _nucleus(logits, params)
    out = np.zeros(len(logits))
    out[ids] = weights / (weights.sum() or 1)
    return out


def draw(weights: DoubleArray, number: float) -> int:
    """The index that a number in [0, 1) picks by weights float64[n] of any sum; never one of weight 0."""
    cumulative = np.cumsum(weights)
    last = np.searchsorted(cumulative, cumulative[-1])  # the product below may round up to the sum
    return int(min(np.searchsorted(cumulative, number * cumulative[-1], side="right"), last))


def uniform(seed: int, position: int, stream: Stream) -> float:
    """A number in [0, 1)."""
    return float(_generator(seed, position, stream).random())


def _generator(seed: int, position: int, stream: Stream) -> np.random.Generator:
    """Numbers by Philox (Salmon et al. 2011): seed and stream are its key, the position its counter.

    The counter's lowest word counts within the position.
    """
    return np.random.Generator(np.random.Philox(key=stream << 64 | seed, counter=position << 64))


def _nucleus(logits: FloatArray, params: SamplingParams) -> tuple[npt.NDArray[np.intp], DoubleArray]:
    """Ids that top-k and top-p keep, and their weights."""
    ids = _largest(logits, params.top_k) if params.top_k else np.arange(len(logits))
    weights = logits[ids].astype(np.float64)
    weights = np.exp(weights - max(weights.max(), np.finfo(np.float64).min))  # all 0 where every token is banned
    if 0 < params.top_p < 1:
        kept = _heaviest(weights, params.top_p)
        ids, weights = ids[kept], weights[kept]
    return ids, weights


def _heaviest(weights: DoubleArray, share: float) -> npt.NDArray[np.intp]:
    """Indices of the fewest weights that sum up to a share of all."""
    wanted = share * weights.sum()
    best = _largest(weights, _FEW)
    cumulative = np.cumsum(weights[best])
    if cumulative[-1] < wanted:
        best = _largest(weights, len(weights))
        cumulative = np.cumsum(weights[best])
    return best[: int(np.searchsorted(cumulative, wanted)) + 1]


def _largest(values: npt.NDArray[np.floating[Any]], count: int) -> npt.NDArray[np.intp]:
    """Indices of the `count` largest values, largest first (ties: the lowest index)."""
    rest = len(values) - count
    ids = np.flatnonzero(values >= np.partition(values, rest)[rest]) if rest > 0 else np.arange(len(values))
    return ids[np.argsort(-values[ids], kind="stable")][:count]


def log_prob(logits: FloatArray, token: int) -> float:
    """Natural log of the token's probability by processed logits, before top-k and top-p."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return float(shifted[token] - np.log(np.exp(shifted).sum()))


def _penalize(logits: FloatArray, params: SamplingParams, history: IntArray) -> None:
    ids, counts = np.unique(history, return_counts=True)
    seen = logits[ids]
    penalty = np.float32(params.repetition_penalty)
    seen = np.where(seen < 0, seen * penalty, seen / penalty)
    seen -= np.float32(params.presence_penalty)
    seen -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
    logits[ids] = seen


def _bad_ends(words: Words, history: IntArray) -> list[int]:
    """Last tokens of the bad words whose other tokens end the history."""
    ends = []
    for word in words:
        before = len(word) - 1
        if before <= len(history) and tuple(history[len(history) - before :].tolist()) == word[:-1]:
            ends.append(word[-1])
    return ends
