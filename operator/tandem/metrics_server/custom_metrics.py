"""The API group `custom.metrics.k8s.io/v1beta2` for our kind: what each path answers. Pure.

https://github.com/kubernetes/metrics/tree/master/pkg/apis/custom_metrics/v1beta2
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem.api import API_VERSION, GROUP, KIND, PLURAL
from tandem.autoscaling import REPLICAS_NEEDED
from tandem.metrics.report import ServiceReport

METRICS_GROUP, METRICS_VERSION = "custom.metrics.k8s.io", "v1beta2"
METRICS_API = f"{METRICS_GROUP}/{METRICS_VERSION}"
RESOURCE = f"{PLURAL}.{GROUP}"
ALL_OBJECTS = "*"

METRICS: Mapping[str, Callable[[ServiceReport], float | None]] = {
    REPLICAS_NEEDED: lambda report: report.decision.load if report.decision else None,
    "tandem_acceptance_rate": lambda report: report.speculation.acceptance_rate,
    "tandem_mean_accepted_length": lambda report: report.speculation.mean_accepted_length,
    "tandem_tokens_per_second": lambda report: report.tokens_per_second,
    "tandem_requests_running": lambda report: report.running,
    "tandem_requests_waiting": lambda report: report.waiting,
}
"""Metrics of a service. The first one is the autoscaler's, the others are for people."""


def resources() -> dict[str, Any]:
    """The APIResourceList of the group version: discovery."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": METRICS_API,
        "resources": [
            {
                "name": f"{RESOURCE}/{metric}",
                "singularName": "",
                "namespaced": True,
                "kind": "MetricValueList",
                "verbs": ["get"],
            }
            for metric in METRICS
        ],
    }


def values(metric: str, reports: Sequence[ServiceReport]) -> dict[str, Any] | None:
    """The MetricValueList of `reports`; None when none of them knows the metric."""
    items = [item for report in reports if (item := _value(metric, report))]
    if not items:
        return None
    return {"kind": "MetricValueList", "apiVersion": METRICS_API, "metadata": {}, "items": items}


def _value(metric: str, report: ServiceReport) -> dict[str, Any] | None:
    value = METRICS[metric](report)
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return {
        "describedObject": {
            "kind": KIND,
            "namespace": report.namespace,
            "name": report.name,
            "apiVersion": API_VERSION,
        },
        "metric": {"name": metric, "selector": None},
        "timestamp": report.observed_at,
        "windowSeconds": round(report.window_seconds),
        "value": quantity(value),
    }


def quantity(value: float) -> str:
    """A Kubernetes Quantity, in thousandths: what autoscalers reckon in.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity
    """
    thousandths = round(value * 1000)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


def failure(code: int, message: str) -> dict[str, Any]:
    """The `Status` object with which Kubernetes says no."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "InternalError" if code >= 500 else "BadRequest"),
        "code": code,
    }
