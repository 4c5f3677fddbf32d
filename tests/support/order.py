"""The order of files in runs of several processes (`--dist loadfile --no-loadscope-reorder`)."""

from collections.abc import Sequence

import pytest


def first(items: list[pytest.Item], files: Sequence[str]) -> None:
    """Move these files (names without `.py`) to the front: a long one that began last would run on alone."""
    rank = {name: number for number, name in enumerate(files)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(files)))
