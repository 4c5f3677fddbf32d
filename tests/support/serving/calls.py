"""A group's calls by the names of their sequences, for tests of schedules and strategies."""

from collections.abc import Iterable

import numpy as np

from tandem_serving.bls.batches import Batch, Group, Row
from tandem_serving.bls.calls import Call, Role
from tandem_serving.bls.step_limits import StepLimits

IDS = np.arange(4, dtype=np.int32)


def row(name: str, role: Role, key: str = "k", own: bool = False, first: bool = False) -> Row[str]:
    """A call of this sequence."""
    return Row(name, Call(role, IDS, 4, first=first), key, own)


def group(members: int, rows: int = 64) -> Group[str]:
    """A group of which nothing waits."""
    return Group("k", StepLimits(rows), members)


def ask(group: Group[str], drafts: str = "", targets: str = "") -> None:
    """A call for each letter."""
    group.waiting["draft"] += [row(name, "draft") for name in drafts]
    group.waiting["target"] += [row(name, "target") for name in targets]


def end(group: Group[str], batch: Batch[str]) -> None:
    """A batch is over."""
    group.in_flight[batch.role].remove(batch)


def names(batches: Iterable[Batch[str]]) -> list[str]:
    """Whose calls are in each batch."""
    return ["".join(row.sequence for row in batch.rows) for batch in batches]


def routes(batches: Iterable[Batch[str]]) -> list[tuple[str, str]]:
    """Where each batch goes, and whose calls are in it."""
    return [(batch.route, name) for batch in batches for name in names([batch])]
