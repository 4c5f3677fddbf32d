"""Whether outcomes have a distribution."""

from collections.abc import Mapping
from typing import Any

import numpy as np

RIGHT = 3.0  # a deviation of the right distribution is below it


def deviation(counts: Mapping[Any, int], expected: Mapping[Any, float]) -> float:
    """How far counts are from expected probabilities: Pearson's chi-square as a standard normal number.

    The normal number is Wilson and Hilferty's (1931). Outcomes expected less than 5 times are one class.
    """
    total = sum(counts.values())
    if any(expected.get(outcome, 0) == 0 for outcome in counts):
        return np.inf
    rare = [outcome for outcome, share in expected.items() if share * total < 5]
    classes = [[outcome] for outcome in expected if outcome not in rare] + ([rare] if rare else [])
    pairs = [
        (sum(counts.get(each, 0) for each in one), total * sum(expected[each] for each in one)) for one in classes
    ]
    square = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs if wanted > 0)
    free = len(pairs) - 1
    assert free > 0, "one outcome alone shows nothing"
    spread = 2 / (9 * free)
    return float(((square / free) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))
