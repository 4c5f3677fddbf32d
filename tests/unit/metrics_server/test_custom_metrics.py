"""What the custom metrics API says of reports."""

import math
from typing import Any

import pytest
import yaml

from tandem.metrics_server.custom_metrics import METRICS, failure, quantity, resources, values

from .conftest import report

ONE = """
kind: MetricValueList
apiVersion: custom.metrics.k8s.io/v1beta2
metadata: {}
items:
- describedObject:
    {kind: SpeculativeInferenceService, namespace: team-a, name: llama, apiVersion: serving.tandem.dev/v1alpha1}
  metric: {name: tandem_replicas_needed, selector: null}
  timestamp: "2026-11-21T22:00:00Z"
  windowSeconds: 60
  value: 2500m
"""


def test_a_value_as_autoscalers_read_it() -> None:
    assert values("tandem_replicas_needed", [report()]) == yaml.safe_load(ONE)


@pytest.mark.parametrize(
    ("load", "why"),
    [(None, "hold"), (math.nan, "no number"), (math.inf, "no finite one"), (-1.0, "nobody needs fewer than none")],
)
def test_what_is_not_known_is_absent(load: float | None, why: str) -> None:
    assert values("tandem_replicas_needed", [report(load=load)]) is None, why
    both = values("tandem_replicas_needed", [report("a", load=load), report("b")])
    assert both is not None
    assert [item["describedObject"]["name"] for item in both["items"]] == ["b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3, "3"),
        (2.5, "2500m"),
        (0.8123, "812m"),
        (0.0004, "0"),
        (1.0001, "1"),
        (123456.789, "123456789m"),
        (1e15, "1000000000000000"),
    ],
)
def test_quantities(value: float, text: str) -> None:
    assert quantity(value) == text


def test_discovery_lists_every_metric_as_namespaced() -> None:
    listed: list[dict[str, Any]] = resources()["resources"]
    assert [entry["name"].split("/")[1] for entry in listed] == list(METRICS)
    assert all(entry["namespaced"] and entry["verbs"] == ["get"] for entry in listed)


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "NotFound"), (401, "Unauthorized"), (503, "ServiceUnavailable"), (414, "BadRequest")]
)
def test_refusals_are_status_objects(code: int, reason: str) -> None:
    status = failure(code, "words")
    assert (status["kind"], status["reason"], status["code"], status["message"]) == ("Status", reason, code, "words")
