"""The HorizontalPodAutoscaler's own algorithm for a metric of type Object with an AverageValue target of 1. Pure.

Source: Kubernetes' pkg/controller/podautoscaler, replica_calculator.go (GetObjectPerPodMetricReplicas) and
horizontal.go (stabilizeRecommendationWithBehaviors, calculateScaleUpLimitWithScalingRules). The behaviour is that of
Tandem's own (`tandem.children.autoscaler`).
"""

import math
from collections import deque

SYNC = 15.0
TOLERANCE = 0.1
PERIOD = 60.0


class Hpa:
    """One autoscaler. `stabilization`: seconds for which the highest recommendation counts on the way down;
    `tolerance`: `behavior.scaleUp.tolerance`."""

    def __init__(self, least: int, most: int, stabilization: float = 240.0, tolerance: float = TOLERANCE) -> None:
        self._least, self._most, self._stabilization, self._tolerance = least, most, stabilization, tolerance
        self._recommended: deque[tuple[float, int]] = deque()
        self._ups: deque[tuple[float, int]] = deque()

    def sync(self, now: float, current: int, value: float | None) -> int:
        """The replicas wanted, given those of the scale's status and the metric; None: no metric, nothing changes."""
        if value is None:
            return current
        ratio = value / max(1, current)
        wanted = current if 1 - TOLERANCE <= ratio <= 1 + self._tolerance else math.ceil(value - 1e-9)
        wanted = min(max(wanted, self._least), self._most)
        self._recommended.append((now, wanted))
        while self._recommended[0][0] <= now - self._stabilization:
            self._recommended.popleft()
        if wanted < current:
            return min(current, max(each for _, each in self._recommended))
        wanted = min(wanted, self._up_limit(now, current))
        if wanted > current:
            self._ups.append((now, wanted - current))
        return wanted

    def _up_limit(self, now: float, current: int) -> int:
        """Two policies, of which the larger counts: four pods, or twice as many, in a minute."""
        while self._ups and self._ups[0][0] <= now - PERIOD:
            self._ups.popleft()
        start = current - sum(count for _, count in self._ups)
        return max(start + 4, 2 * start)
