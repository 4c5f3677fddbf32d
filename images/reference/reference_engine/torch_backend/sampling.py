"""Sampled tokens on the device: temperature, top-k, top-p and the draw, a program a row.

As `reference_engine.sampling`: a race of the ids by clocks, exponential numbers by seed, position and id, so
that a draw depends on the distribution, the seed and the position alone, and draft and target race by the same
clocks. The numbers are others than numpy's. Thresholds of top-k and top-p are found by bisection over the bits
of the weights: no sorting.
"""

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.choice import Choice

_BLOCK = 4096
_COLDEST = 1e-4  # logits of bfloat16 models: below it the highest has all the weight


def handles(each: Choice) -> bool:
    """Whether the device chooses: nothing but temperature, top-k and top-p, and no output beyond the token."""
    request, params = each.request, each.request.sampling
    adjusted = (
        params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty or params.min_tokens
    )
    return not (
        params.greedy
        or adjusted
        or params.bad_words
        or params.embedding_bias is not None
        or request.draft_logits is not None
        or request.log_probs
        or request.logits
    )


def choose(logits: Tensor, top: Tensor, choices: Sequence[tuple[int, Choice]]) -> Tensor:
    """`top` int64[rows] with the tokens of these choices, each with its first row of `logits` float32[rows, V]."""
    rows = [(first + i, each, each.length + i) for first, each in choices for i in range(each.rows)]
    whole = np.array([(row, each.request.sampling.top_k) for row, each, _ in rows], np.int32)
    seeds = np.array([[each.request.sampling.seed & 0x7FFFFFFFFFFFFFFF, position] for _, each, position in rows], np.int64)
    real = np.array(
        [(max(each.request.sampling.temperature, _COLDEST), each.request.sampling.top_p) for _, each, _ in rows],
        np.float32,
    )
    out = top.clone()
    to = {"device": logits.device, "non_blocking": True}
    _choose[(len(rows),)](
        logits, torch.from_numpy(whole).to(**to), torch.from_numpy(seeds).to(**to), torch.from_numpy(real).to(**to),
        out, logits.stride(0), logits.shape[1], BLOCK=_BLOCK, num_warps=16,
    )  # fmt: skip
    return out


@triton.jit
def _mixed(x):
    """The finalizer of SplitMix64 (Steele et al. 2014): every bit of x moves every bit of the result."""
    x = x.to(tl.uint64)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _choose(logits, whole, seeds, real, out, stride, vocabulary, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    row, top_k = tl.load(whole + 2 * program), tl.load(whole + 2 * program + 1)
    seed, position = tl.load(seeds + 2 * program), tl.load(seeds + 2 * program + 1)
    temperature, top_p = tl.load(real + 2 * program), tl.load(real + 2 * program + 1)
    base = logits + row.to(tl.int64) * stride
    at = tl.arange(0, BLOCK)

    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for begin in range(0, vocabulary, BLOCK):
        best = tl.maximum(best, tl.load(base + begin + at, begin + at < vocabulary, float("-inf")))
    top = tl.max(best, 0)

    # A weight's bits, as a whole number, rise with it: bisect for the least weight that stays.
    least = tl.full([], 0, tl.int32)
    if top_k > 0:
        for bit in range(29, -1, -1):
            trial = least | (1 << bit)
            count = tl.zeros([BLOCK], tl.int32)
            for begin in range(0, vocabulary, BLOCK):
                value = tl.load(base + begin + at, begin + at < vocabulary, float("-inf"))
                weight = tl.exp((value - top) / temperature)
                count += (weight.to(tl.int32, bitcast=True) >= trial).to(tl.int32)
            least = tl.where(tl.sum(count, 0) >= top_k, trial, least)
    if (top_p > 0) & (top_p < 1):
        kept = least
        mass = tl.zeros([BLOCK], tl.float32)
        for begin in range(0, vocabulary, BLOCK):
            value = tl.load(base + begin + at, begin + at < vocabulary, float("-inf"))
            weight = tl.exp((value - top) / temperature)
            mass += tl.where(weight.to(tl.int32, bitcast=True) >= kept, weight, 0.0)
        wanted = top_p * tl.sum(mass, 0)
        nucleus = tl.full([], 0, tl.int32)
        for bit in range(29, -1, -1):
            trial = nucleus | (1 << bit)
            mass = tl.zeros([BLOCK], tl.float32)
            for begin in range(0, vocabulary, BLOCK):
                value = tl.load(base + begin + at, begin + at < vocabulary, float("-inf"))
                weight = tl.exp((value - top) / temperature)
                mass += tl.where(weight.to(tl.int32, bitcast=True) >= tl.maximum(trial, kept), weight, 0.0)
            nucleus = tl.where(tl.sum(mass, 0) >= wanted, trial, nucleus)
        least = tl.maximum(least, nucleus)

    stream = _mixed(_mixed(seed.to(tl.uint64) + 0x9E3779B97F4A7C15) ^ position.to(tl.uint64))
    quickest = tl.full([BLOCK], -1.0, tl.float32)
    ids = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, vocabulary, BLOCK):
        value = tl.load(base + begin + at, begin + at < vocabulary, float("-inf"))
        weight = tl.exp((value - top) / temperature)
        stays = (weight.to(tl.int32, bitcast=True) >= least) & (begin + at < vocabulary)
        number = _mixed(stream + (begin + at).to(tl.uint64) * 0x9E3779B97F4A7C15)
        share = ((number >> 40).to(tl.float32) + 0.5) * (1.0 / 16777216.0)  # in (0, 1)
        pace = tl.where(stays, weight / -tl.log(share), -1.0)
        ids = tl.where(pace > quickest, begin + at, ids)
        quickest = tl.maximum(quickest, pace)
    winner = tl.max(quickest, 0)
    tl.store(out + row, tl.min(tl.where(quickest == winner, ids, 2147483647), 0).to(tl.int64))
