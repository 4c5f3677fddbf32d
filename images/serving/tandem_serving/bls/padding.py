"""Drafts of equal length: one verification needs them in all its rows. Pure.

Shorter drafts are padded with made-up tokens, which the target refuses like any other wrong guess.
"""

from __future__ import annotations

from collections import defaultdict

from tandem_serving.bls.batches import Batch, Row
from tandem_serving.bls.calls import Call
from tandem_serving.bls.sequence import BlsSequence


def fit(batch: Batch[BlsSequence]) -> list[Batch[BlsSequence]]:
    """The batch with all drafts as long as its longest; rows that cannot be padded follow, a batch a length."""
    if batch.role == "draft" or len(batch.rows) == 1:
        return [batch]
    longest = max(len(row.call.draft_ids) for row in batch.rows)
    together, apart = [], []
    for row in batch.rows:
        call: Call | None = row.call
        if len(row.call.draft_ids) < longest:
            call = None if row.sequence.reproducible else row.sequence.loop.pad_to(row.call, longest)
        if call is None:
            apart.append(row)
        else:
            together.append(Row(row.sequence, call, row.key))
    batch.rows = together
    lengths: dict[int, list[Row[BlsSequence]]] = defaultdict(list)
    for row in apart:
        lengths[len(row.call.draft_ids)].append(row)
    return [batch, *(Batch(batch.role, rows, shared=False) for rows in lengths.values())]


def fit_to(batch: Batch[BlsSequence], longest: int) -> list[Batch[BlsSequence]]:
    """The batch without rows that cannot have `longest` draft tokens, to which the server pads all: those follow in
    batches of their own. Where none can, the batch itself is left out.
    """
    fitting: list[Row[BlsSequence]] = []
    apart: list[Row[BlsSequence]] = []
    for row in batch.rows:
        (fitting if row.sequence.loop.takes(row.call, longest) else apart).append(row)
    alone = [Batch(batch.role, [row], shared=False) for row in apart]
    if not fitting:
        return alone
    batch.rows = fitting
    return [batch, *alone]
