"""Tokens of logits on the device: the highest, or by temperature, top-k, top-p and a draw.

As `reference_engine.sampling`: a race of the ids by clocks, exponential numbers by seed, position and id, so
that a draw depends on the distribution, the seed and the position alone, and draft and target race by the
same clocks. The numbers are others than numpy's. The least weights that top-k and top-p keep are searched by their
bits, five at a time: no sorting.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reference_engine.choice import Choice
from reference_engine.request import Request
from reference_engine.sampling import SamplingParams
from reference_engine.torch_backend import chain, draws

IntArray = npt.NDArray[np.int64]

FIELDS: int = draws.FIELDS.value
_BLOCK = 4096
_WARPS = 4
_LARGEST = 0x7FFFFFFFFFFFFFFF
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


class _Search:
    """Memory of a search for the least weight, by top-k or top-p."""

    def __init__(self, rows: int, parts: int, device: torch.device) -> None:
        rounds, ways = draws.ROUNDS.value, draws.WAYS.value
        self.lows = torch.empty((rows, rounds), dtype=torch.int32, device=device)
        self.wants = torch.empty((rows, rounds), dtype=torch.float32, device=device)
        self.sums = torch.empty((2, rows, parts, ways), dtype=torch.float32, device=device)

    @property
    def memory(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.lows, self.wants, self.sums


class Chooser:
    """Tokens int32[rows] of logits `values` float32[rows, vocabulary], both on the device, for every pass again."""

    def __init__(self, rows: int, vocabulary: int, device: torch.device) -> None:
        self.values = torch.empty((rows, vocabulary), dtype=torch.float32, device=device)
        self.chosen = torch.zeros(rows, dtype=torch.int32, device=device)
        if device.type != "cuda":
            return
        self._parts = -(-vocabulary // _BLOCK)
        self._padded = 1 << (self._parts - 1).bit_length()
        self._best = torch.empty((rows, self._parts), dtype=torch.float32, device=device)
        self._ids = torch.empty((rows, self._parts), dtype=torch.int32, device=device)
        self._given = torch.empty((rows, FIELDS), dtype=torch.int64, device=device)
        self._by_count, self._by_mass = (_Search(rows, self._parts, device) for _ in range(2))

    def feed(self, ids: Tensor) -> None:
        """Replace ids below 0 by the tokens of the last pass, as `backend.of_row` names them."""
        if not ids.is_cuda:
            ids.copy_(torch.where(ids < 0, self.chosen[(-1 - ids).clamp(min=0)], ids))
            return
        draws.feed[(-(-len(ids) // 256),)](ids, self.chosen, len(ids), BLOCK=256, **chain.options())

    def highest(self, logits: Tensor) -> None:
        """Keep logits [n, vocabulary] in `values`, of each row the first of the highest in `chosen`."""
        rows = len(logits)
        if not logits.is_cuda:
            self.values[:rows] = logits
            self.chosen[:rows] = logits.argmax(-1)
            return
        draws.tops[(rows, self._parts)](
            logits.contiguous(), self.values, self._best, self._ids, logits.shape[1], BLOCK=_BLOCK, num_warps=8,
            **chain.options(),
        )  # fmt: skip
        self._winner(rows, sampled=False, **chain.options())

    def _winner(self, rows: int, sampled: bool, **options: bool) -> None:
        draws.winner[(rows,)](
            self._best, self._ids, self._given, self.chosen, self._parts, SAMPLED=sampled, PARTS=self._padded,
            num_warps=1, **options,
        )  # fmt: skip

    def draw(self, choices: Sequence[tuple[int, Choice]], pinned: Tensor) -> None:
        """Put the tokens of these choices into `chosen`; each comes with its first row. After `highest`.

        `pinned` int64[rows, FIELDS] on the host is read while the device computes.
        """
        params = [each.request.sampling for _, each in choices]
        rows = _fill(pinned.numpy(), choices)
        self._given[:rows].copy_(pinned[:rows], non_blocking=True)
        by_count, by_mass = any(each.top_k for each in params), any(0 < each.top_p < 1 for each in params)
        if by_count:
            self._search(rows, self._by_count, by_mass=False, kept=False)
        if by_mass:
            self._search(rows, self._by_mass, by_mass=True, kept=by_count)
        draws.race[(rows, self._parts)](
            self.values, self.chosen, self._given, *self._by_count.memory, *self._by_mass.memory, self._best,
            self._ids, self.values.shape[1], BY_COUNT=by_count, BY_MASS=by_mass, PARTS=self._padded, BLOCK=_BLOCK,
            num_warps=8,
        )  # fmt: skip
        self._winner(rows, sampled=True, CHAINED=False)

    def warm(self, pinned: Tensor) -> None:
        """Compile the kernels of all kinds of draws."""
        for top_k, top_p in ((0, 1.0), (2, 1.0), (0, 0.5), (2, 0.5)):
            request = Request(np.zeros(1, np.int32), 1, sampling=SamplingParams(top_k=top_k, top_p=top_p))
            self.draw([(0, Choice(request, request.input_ids, 1, 1))], pinned)

    def _search(self, rows: int, search: _Search, by_mass: bool, kept: bool) -> None:
        for done in range(draws.ROUNDS.value):
            draws.narrow[(rows, self._parts)](
                self.values, self.chosen, self._given, *search.memory, *self._by_count.memory, self.values.shape[1],
                done, BY_MASS=by_mass, KEPT=kept, PARTS=self._padded, BLOCK=_BLOCK, num_warps=_WARPS,
            )  # fmt: skip


class Unchosen(Chooser):
    """Of a rank that chooses no tokens: it gets them from the one that does."""

    def __init__(self, rows: int, vocabulary: int, device: torch.device) -> None:
        self.values = torch.empty((0, vocabulary), dtype=torch.float32, device=device)
        self.chosen = torch.zeros(0, dtype=torch.int32, device=device)

    def feed(self, ids: Tensor) -> None:
        """The leader does."""

    def highest(self, logits: Tensor) -> None:
        """The leader does."""


def _fill(given: IntArray, choices: Sequence[tuple[int, Choice]]) -> int:
    """The fields of `draws` for each of the choices' rows; returns how many they are."""
    firsts, counts, positions, counted, seeds = np.array(
        [
            (first, each.rows, each.length, each.request.sampling.top_k, each.request.sampling.seed & _LARGEST)
            for first, each in choices
        ],
        np.int64,
    ).T
    real = np.array(
        [(max(each.request.sampling.temperature, _COLDEST), each.request.sampling.top_p) for _, each in choices],
        np.float32,
    )
    ends = np.cumsum(counts)
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    fields = np.column_stack([firsts, counted, seeds, positions, real.view(np.int32)])
    given[: ends[-1]] = np.repeat(fields, counts, axis=0)
    given[: ends[-1], 0] += within
    given[: ends[-1], 3] += within
    return int(ends[-1])
