"""What a newer version wrote is read as far as it is understood."""

from typing import Any

import pytest
import yaml

from support.services import QUICKSTART
from tandem.api.types import SpeculativeInferenceService

AT = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "ServersAnswer", "message": "", "lastTransitionTime": AT}


def service(status: Any = None, **spec: Any) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(QUICKSTART)
    return {**raw, "spec": {**raw["spec"], **spec}, **({"status": status} if status is not None else {})}


SPEEDUP = {"speedupSource": "Oracle", "speedup": 2, "observedAt": AT}
STATUSES: list[tuple[str, Any, dict[str, Any]]] = [
    ("an enum's value", {"speculation": SPEEDUP}, {"speculation": {"speedup": 2, "observedAt": AT}}),
    ("what must be", {"url": "u", "speculation": {**SPEEDUP, "observedAt": {}}}, {"url": "u"}),
    ("a condition", {"conditions": [{**READY, "status": "Perhaps"}, READY]}, {"conditions": [READY]}),
    ("a number", {"readyReplicas": "many", "replicas": 2}, {"replicas": 2}),
    ("a list", {"conditions": "none", "url": "u"}, {"url": "u"}),
    ("a field", {"later": 1}, {}),
]


@pytest.mark.parametrize(("what", "status", "left"), STATUSES, ids=[row[0] for row in STATUSES])
def test_a_status_keeps_no_spec_from_being_read(what: str, status: Any, left: dict[str, Any]) -> None:
    read, problem = SpeculativeInferenceService.read(service(status, replicas=3))
    assert (read.spec.replicas, problem) == (3, ""), what
    shown = read.status.model_dump(by_alias=True, exclude_unset=True)
    assert shown == SpeculativeInferenceService.read(service(left))[0].status.model_dump(
        by_alias=True, exclude_unset=True
    )


MISSING = "spec.runtime.mode: Field required; spec.runtime.profile: Field required; spec.target.model: Field required"
SPECS: list[tuple[str, dict[str, Any], str]] = [
    (
        "an enum's value",
        {"speculation": {"decodingType": "Newest"}},
        "spec.speculation.decodingType: Input should be",
    ),
    ("of what must be", {"runtime": {"mode": "Fast", "profile": "p"}}, "spec.runtime.mode: Input should be 'LLMAPI'"),
    ("of what may be", {"rollout": {"strategy": "Canary"}}, "spec.rollout.strategy: Input should be 'Surge'"),
    (
        "a number out of bounds",
        {"serving": {"maxBatchSize": 4096}},
        "spec.serving.maxBatchSize: Input should be less",
    ),
    ("another type", {"target": "hf://a/b"}, "spec.target: Input should be"),
    ("several", {"runtime": {}, "target": {}}, MISSING),
]


@pytest.mark.parametrize(("what", "spec", "problem"), SPECS, ids=[row[0] for row in SPECS])
def test_the_rest_of_a_spec_is_read(what: str, spec: dict[str, Any], problem: str) -> None:
    read, found = SpeculativeInferenceService.read(service({"currentRevision": "a"}, replicas=3, **spec))
    assert found.startswith(problem), what
    assert (read.name, read.spec.replicas, read.status.current_revision) == ("quickstart", 3, "a")


def test_replicas_that_are_not_understood_are_those_that_run() -> None:
    raw = service({"replicas": 5}, replicas=10**9, rollout={"strategy": "Replace"})
    read, found = SpeculativeInferenceService.read(raw)
    assert (read.spec.replicas, read.spec.rollout.strategy) == (5, "Replace")
    assert "spec.replicas" in found
