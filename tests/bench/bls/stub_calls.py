"""What the stub engine answers to a call of any number of rows, in a few numpy operations for all of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.bls import tokens
from bench.bls.in_flight import PrefixCache, rows_at

Ids = npt.NDArray[np.int32]
Counts = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Work:
    """A call's answer: row r gets `ids[r, :counts[r]]` after `steps[r]` steps.

    `keys` and `lengths` of its prompts; `held`: tokens of each that are cached afterwards.
    """

    ids: Ids
    counts: Counts
    steps: Counts
    rows: list[int]
    draft_tokens: int
    keys: list[int]
    lengths: list[int]
    held: list[int]


class WorkMaker:
    """Makes answers, and keeps account of the prefix cache."""

    def __init__(self, is_draft: bool, alphas: list[float]) -> None:
        self._is_draft = is_draft
        self._alphas = np.array(alphas)
        self._cache = PrefixCache()

    def work(self, ids: Ids, lengths: Ids, output_lens: Ids, drafted: Ids | None) -> Work:
        """The answer for input_ids int32[B, n], lengths and request_output_len int32[B], drafts int32[B, k].

        Raises ValueError for prompts shorter than KEY_TOKENS.
        """
        if int(lengths.min()) < tokens.KEY_TOKENS:
            raise ValueError(f"the stub engine needs prompts of at least {tokens.KEY_TOKENS} tokens")
        keys = tokens.keys(ids)
        longest = int(output_lens.max())
        if drafted is not None:
            longest = max(longest, drafted.shape[1] + 1)
        positions = lengths[:, None] + np.arange(longest)
        true = tokens.true_tokens(keys, positions)
        if drafted is not None:
            return self._verification(keys, lengths, true, drafted, output_lens)
        if self._is_draft:
            agreed = tokens.agrees(keys, positions, tokens.alpha_of(keys, self._alphas))
            made = tokens.draft_tokens(true, agreed)
            held = lengths + np.minimum(tokens.leading(agreed), output_lens - 1)
        else:
            made, held = true, lengths + output_lens - 1
        return _work(made, output_lens, output_lens, 0, (keys, lengths, held))

    def prefill(self, work: Work) -> int:
        """Tokens that the call has to prefill, over all rows."""
        return sum(map(self._cache.missing, work.keys, work.lengths))

    def store(self, work: Work) -> None:
        """The call is over: its tokens are cached."""
        for key, held in zip(work.keys, work.held, strict=True):
            self._cache.store(key, held)

    def _verification(self, keys: tokens.U64, lengths: Ids, true: Ids, drafted: Ids, output_lens: Ids) -> Work:
        k = drafted.shape[1]
        accepted = np.minimum(tokens.leading(true[:, :k] == drafted), output_lens - 1)
        return _work(
            true, accepted + 1, np.ones(len(keys), np.int64), drafted.size, (keys, lengths, lengths + accepted)
        )


def _work(ids: Ids, counts: Counts, steps: Counts, draft_tokens: int, rest: tuple[tokens.U64, Ids, Counts]) -> Work:
    keys, lengths, held = (each.tolist() for each in rest)
    return Work(ids, counts, steps, rows_at(steps.tolist()), draft_tokens, keys, lengths, held)
