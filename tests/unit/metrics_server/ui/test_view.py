"""What the page shows of a service."""

from typing import Any

import pytest

from support.reports import quiet, report
from tandem.api.types import ServiceStatus
from tandem.metrics_server.ui.view import Detail, Summary, detail, summary

from .conftest import known, pod, service

SINCE = "2026-11-26T08:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "why") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def with_status(status: dict[str, Any], **changes: Any) -> Any:
    return service(**changes).model_copy(update={"status": ServiceStatus.model_validate(status)})


STATES: list[tuple[str, list[dict[str, Any]], str, str]] = [
    # why, conditions, tone, state
    ("it answers", [condition("Ready", "True", "ServersAnswer")], "good", "Ready"),
    ("as asked", [condition("Ready", "True", "ScaledToZero")], "unknown", "ScaledToZero"),
    (
        "the operator is at work",
        [condition("Ready", "False", "RollingOut"), condition("Reconciling", "True", "RollingOut")],
        "busy",
        "RollingOut",
    ),
    (
        "a person must act",
        [
            condition("Ready", "False", "RollingOut"),
            condition("Reconciling", "True", "RollingOut"),
            condition("Stalled", "True", "ProgressDeadlineExceeded"),
        ],
        "bad",
        "RollingOut",
    ),
    ("refused", [condition("Ready", "False", "SpecRefused")], "bad", "SpecRefused"),
    ("no operator", [], "unknown", "not looked at by the operator yet"),
]


@pytest.mark.parametrize(("conditions", "tone", "state"), [s[1:] for s in STATES], ids=[s[0] for s in STATES])
def test_state(conditions: list[dict[str, Any]], tone: str, state: str) -> None:
    shown = summary(with_status({"conditions": conditions}), None)
    assert (shown.tone, shown.state) == (tone, state)


def test_other_conditions_that_a_person_should_look_at_are_in_the_list() -> None:
    conditions = [
        condition("Ready", "True", "ServersAnswer"),
        condition("SpeculationBeneficial", "False", "SpeculationHarms"),
        condition("SpeculationActive", "Unknown", "NoTraffic"),
    ]
    assert summary(with_status({"conditions": conditions}), None).warnings == ("SpeculationHarms",)


def test_figures_of_a_report() -> None:
    made = report(speculation={"acceptedPerPosition": [0.8, 0.5, 0.5]}, latency={"timeToFirstTokenP95": 0.2})
    figures = summary(service(), made).figures
    assert figures and figures.live
    assert figures.tokens_per_second == 400
    assert figures.tokens_per_second_alone == pytest.approx(400 / 1.5), "by the speed-up at this load"
    assert figures.accepted_by_position == pytest.approx((0.8, 0.4, 0.2)), (
        "of all drafts, not of those that got there"
    )
    assert figures.latency.time_to_first_token_p95 == 0.2


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    idle = summary(service(), quiet()).figures
    assert idle
    shown = idle.model_dump(by_alias=True, exclude_none=True)
    assert shown["tokensPerSecond"] == 0.0
    assert not {"tokensPerSecondAlone", "speedup", "speedupSource", "acceptanceRate", "draftLength"} & shown.keys()


SEEN = {"meanAcceptedLength": 3.1, "speedup": 1.4, "speedupSource": "Benchmark", "observedAt": SINCE}


def test_without_a_report_the_figures_are_those_of_status_and_say_so() -> None:
    figures = summary(with_status({"speculation": SEEN}), None).figures
    assert figures and not figures.live
    assert (figures.mean_accepted_length, figures.observed_at, figures.tokens_per_second) == (3.1, SINCE, None)
    assert summary(service(), None).figures is None


@pytest.mark.parametrize("live", [report(), None], ids=["with a report", "without"])
def test_what_speculation_is_worth_is_said_as_in_the_condition(live: Any) -> None:
    conditions = [condition("SpeculationBeneficial", "True", "Faster", "1.40 times")]
    figures = summary(with_status({"speculation": SEEN, "conditions": conditions}), live).figures
    assert figures and (figures.speedup, figures.speedup_message) == (1.4, "1.40 times"), "not the report's 1.50"


def test_a_recorded_benchmark_stands_in_where_traffic_shows_no_speedup() -> None:
    unseen = report(worth={"speedup": None, "low": None, "high": None})
    figures = summary(with_status({"speculation": SEEN}), unseen).figures
    assert figures and (figures.speedup, figures.speedup_source) == (1.4, "Benchmark")
    assert figures.tokens_per_second_alone is None, "it was measured at another load"


@pytest.mark.parametrize(
    ("autoscaling", "expected", "reason"),
    [
        ({"maxReplicas": 4}, (2, "two"), "the decision of the last round"),
        (None, (None, ""), "there is no autoscaler: the decision moves nothing"),
    ],
)
def test_replicas_and_why(autoscaling: Any, expected: tuple[int | None, str], reason: str) -> None:
    made = with_status({"readyReplicas": 1}, autoscaling=autoscaling)
    shown: Summary = summary(made, report())
    assert (shown.replicas.ready, shown.replicas.wanted) == (1, 1)
    assert (shown.replicas.desired, shown.replicas.message) == expected, reason


def test_conditions_say_what_to_do() -> None:
    conditions = [
        condition("Ready", "True", "ServersAnswer"),
        condition("PodsHealthy", "False", "PodUnschedulable"),
        condition("Stalled", "True", "ProgressDeadlineExceeded"),
    ]
    shown = {c.type: c for c in one({"conditions": conditions}).conditions}
    assert (shown["Ready"].tone, shown["Ready"].action) == ("good", "")
    assert (shown["PodsHealthy"].tone, "placement" in shown["PodsHealthy"].action) == ("bad", True)
    assert (shown["Stalled"].tone, "the rollout goes on" in shown["Stalled"].action) == ("bad", True)


def one(status: dict[str, Any], with_pods: bool = True, **changes: Any) -> Detail:
    made = known(with_status(status, **changes), pod("a"), pod("b", ready=False))
    return detail(made, report(problems=["a: no answer"]), with_pods=with_pods, playground="")


def test_pods_and_their_problems_are_left_out_together() -> None:
    shown, hidden = one({}), one({}, with_pods=False)
    assert shown.pods and [p.state for p in shown.pods] == ["answers", "is starting"]
    assert shown.problems == ("a: no answer",)
    assert (hidden.pods, hidden.problems) == (None, ())


def test_revisions_during_a_rollout() -> None:
    going = one({"currentRevision": "a", "updateRevision": "b"})
    there = one({"currentRevision": "b", "updateRevision": "b"})
    assert (going.revision, going.update_revision) == ("a", "b")
    assert (there.revision, there.update_revision) == ("b", "")


def test_a_prompt_may_name_its_draft_length_where_a_draft_model_is_asked_by_request() -> None:
    assert one({}).draft_by_request
    assert not one({}, draft=None, speculation__decodingType="None", speculation__maxDraftLen=None).draft_by_request
