"""Each autoscaling source has an object, and makes what the golden shows."""

import os
from typing import Any, get_args

import pytest
import yaml

from support.services import DATA, QUICKSTART, autoscaling_cases, parse
from tandem import children
from tandem.api.types import AutoscalingSource
from tandem.api.wire import Object
from tandem.autoscaling import SOURCES, ScalingSource
from tandem.cli.render import Dumper
from tandem.settings import Settings

CASES = autoscaling_cases()
GOLDEN = DATA / "output/autoscaling/cases.yaml"
EMBEDDED = {"maxReplicas": 8}
KEDA = {"maxReplicas": 8, "source": "KEDA"}


@pytest.mark.parametrize("name", get_args(AutoscalingSource))
def test_every_source_has_an_object(name: AutoscalingSource) -> None:
    assert name in SOURCES, (
        f"autoscaling.source {name} has no object: write operator/tandem/autoscaling/{name.lower()}.py with a Source,"
        " and add it to SOURCES in operator/tandem/autoscaling/__init__.py"
    )
    table = (DATA.parents[1] / "docs/how-to/autoscaling.md").read_text(encoding="utf-8")
    assert f"| `{name}` |" in table, f"autoscaling.source {name} has no row in docs/how-to/autoscaling.md: write one"
    cases = {case["autoscaling"].get("source", "Embedded") for case in CASES}
    assert name in cases, f"autoscaling.source {name} has no golden: write a case in tests/data/input/autoscaling"


def test_every_object_has_a_source() -> None:
    assert list(SOURCES) == list(get_args(AutoscalingSource))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_without_metrics_says_what_to_write(source: ScalingSource) -> None:
    """What the object is not made for is a condition, whose message the source has."""
    service = parse(QUICKSTART, autoscaling=EMBEDDED)
    assert service.spec.autoscaling is not None
    made = source.spec(service, service.spec.autoscaling, Settings())
    assert (made is None) == bool(source.no_metrics)


def built(case: dict[str, Any]) -> Object | None:
    service = parse(QUICKSTART, autoscaling=case["autoscaling"])
    return children.autoscaler(service, Settings.model_validate(case.get("settings", {})))


def test_golden_autoscalers() -> None:
    documents = []
    for case in CASES:
        made = built(case)
        assert made is not None
        documents.append({"case": case["case"], "kind": made["kind"], "spec": made["spec"]})
    text = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=110)
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "run `make goldens` and read the difference"


def test_keda_without_metrics_to_read_makes_nothing() -> None:
    assert children.autoscaler(parse(QUICKSTART, autoscaling=KEDA), Settings()) is None


def test_keda_without_a_metrics_server_goes_by_the_users_own_triggers() -> None:
    own = {"type": "cron", "metadata": {"timezone": "Etc/UTC", "start": "0 7 * * *", "end": "0 19 * * *"}}
    asked = {**KEDA, "minReplicas": 0, "keda": {"triggers": [own]}}
    made = children.autoscaler(parse(QUICKSTART, autoscaling=asked), Settings())
    assert made is not None
    assert made["spec"]["triggers"] == [own]


def test_what_is_no_mapping_in_behavior_is_left_to_the_api_server() -> None:
    made = built({"autoscaling": {**EMBEDDED, "behavior": {"scaleUp": None, "sideways": 1}}})
    assert made is not None
    assert made["spec"]["behavior"]["scaleUp"] is None
    assert made["spec"]["behavior"]["sideways"] == 1
