"""Metrics on Triton's metrics port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton_python_backend_utils as pb_utils

from tandem_serving import metrics


class TritonSink:
    """Metric families on Triton's metrics port."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, metrics.Labels], Any] = {}

    def add(self, family: metrics.Family, labels: metrics.Labels, value: float) -> None:
        """Add to a counter or gauge. Raises metrics.SinkError."""
        with _refusals():
            self._metric(family, labels).increment(value)

    def set(self, family: metrics.Family, value: float) -> None:
        """Set a gauge. Raises metrics.SinkError."""
        with _refusals():
            self._metric(family, ()).set(value)

    def _metric(self, family: metrics.Family, labels: metrics.Labels) -> Any:
        if (family.name, labels) not in self._metrics:
            self._metrics[family.name, labels] = self._create(family, labels)
        return self._metrics[family.name, labels]

    def _create(self, family: metrics.Family, labels: metrics.Labels) -> Any:
        if family.name not in self._families:
            self._families[family.name] = pb_utils.MetricFamily(
                name=family.name,
                description=family.help,
                kind=getattr(pb_utils.MetricFamily, family.kind.upper()),
            )
        return self._families[family.name].Metric(labels=dict(labels))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except pb_utils.TritonModelException as error:
        raise metrics.SinkError(str(error)) from None
