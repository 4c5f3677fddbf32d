"""Each call goes on its own, at once, and the engine's in-flight batching merges what it can."""

from __future__ import annotations

from collections.abc import Iterable

from tandem_serving.bls.batches import Batch, Row, S


def start(rows: Iterable[Row[S]]) -> list[Batch[S]]:
    """A batch for each of these."""
    return [Batch(row.call.role, [row], shared=False, via="stream" if row.stream else "engine") for row in rows]
