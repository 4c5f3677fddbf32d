"""Chunks of many requests, packed into two arrays: what the front (`images/serving/front`) takes apart.

The numbers of a chunk are its ticket, whether it is its request's last, and so on as `_row` has them, then its token
ids; the next chunk's follow. The texts stand one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tandem_serving.bls.chunks import BlsChunk, BlsSummary
from tandem_serving.bls.loop import FINISH_END_ID, FINISH_LENGTH, FINISH_STOP
from tandem_serving.requests.tensors import Array

FINISHES = {"": 0, FINISH_LENGTH: 1, FINISH_END_ID: 2, FINISH_STOP: 3}
_NO_SUMMARY = (0, 0, 0, 0)


class Packed(NamedTuple):
    """Packed chunks: int64[n] and, as UTF-8, uint8[m]."""

    numbers: Array
    text: Array


def fits(chunk: BlsChunk) -> bool:
    """Whether a chunk has nothing but what has room among packed chunks."""
    return chunk.log_probs is None and chunk.logits is None and not chunk.perf_metrics and chunk.cum_log_prob is None


def pack(chunks: Iterable[tuple[int, BlsChunk, bool]]) -> Packed:
    """Pack chunks that fit: of each its request's ticket, itself, and whether it is the request's last."""
    numbers: list[int] = []
    texts: list[bytes] = []
    for ticket, chunk, last in chunks:
        text = chunk.text.encode()
        texts.append(text)
        numbers += (
            ticket,
            last,
            chunk.batch_index,
            chunk.accepted,
            chunk.draft_length,
            FINISHES[chunk.finish_reason],
            *(_NO_SUMMARY if chunk.summary is None else _totals(chunk.summary)),
            len(text),
            len(chunk.ids),
            *chunk.ids,
        )
    return Packed(np.array(numbers, np.int64), np.frombuffer(b"".join(texts), np.uint8))


def _totals(summary: BlsSummary) -> tuple[int, int, int, int]:
    return summary.accepted_draft_tokens, summary.draft_tokens, summary.input_tokens, summary.output_tokens
