"""Sampled tokens on the device: temperature, top-k, top-p and the draw, a program a row.

As `reference_engine.sampling`: a race of the ids by clocks, exponential numbers by seed, position and id, so
that a draw depends on the distribution, the seed and the position alone, and draft and target race by the same
clocks. The numbers are others than numpy's. Thresholds of top-k and top-p are found by bisection over the bits
of the weights: no sorting.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from reference_engine.choice import Choice
from reference_engine.torch_backend import kernels

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
    seeds = np.array(
        [[each.request.sampling.seed & 0x7FFFFFFFFFFFFFFF, position] for _, each, position in rows], np.int64
    )
    real = np.array(
        [(max(each.request.sampling.temperature, _COLDEST), each.request.sampling.top_p) for _, each, _ in rows],
        np.float32,
    )
    out = top.clone()
    to = {"device": logits.device, "non_blocking": True}
    kernels.choose[(len(rows),)](
        logits, torch.from_numpy(whole).to(**to), torch.from_numpy(seeds).to(**to), torch.from_numpy(real).to(**to),
        out, logits.stride(0), logits.shape[1], BLOCK=_BLOCK, num_warps=16,
    )  # fmt: skip
    return out
