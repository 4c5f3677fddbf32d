"""Which change of a report is told in status, and how often."""

from typing import Any

import pytest

from support.reports import quiet, report, sure
from tandem.conditions.writes import (
    IDLE_SECONDS,
    SHOW_SECONDS,
    ShownReport,
    autoscaling_status,
    drafting,
    material,
    scaling_moved,
    speculation_status,
    update,
)
from tandem.metrics.report import ServiceReport

STEP = {"maxBatchSize": 8, "draftLen": 4}
MATERIAL: list[tuple[str, dict[str, Any], bool]] = [
    ("nothing changed", {}, False),
    (
        "it was seen later, from more steps",
        {"observedAt": "2026-01-01T00:01:00Z", "speculation": {"samples": 9}},
        False,
    ),
    ("half a percentage point", {"speculation": {"acceptanceRate": 0.755}}, False),
    ("a percentage point", {"speculation": {"acceptanceRate": 0.76}}, True),
    ("a percentage point less", {"speculation": {"acceptanceRate": 0.74}}, True),
    ("the rate is no longer told", {"speculation": {"acceptanceRate": None}}, False),
    ("0.04 tokens", {"speculation": {"meanAcceptedLength": 3.94}}, False),
    ("0.05 tokens", {"speculation": {"meanAcceptedLength": 3.95}}, True),
    ("the draft length alone", {"speculation": {"draftLength": 6}}, False),
    ("4 % of speed-up", {"worth": {"speedup": 1.56}}, False),
    ("6 % of speed-up", {"worth": {"speedup": 1.59}}, True),
    (
        "nothing is drafted any more, over 24,000 tokens",
        {"speculation": {"drafted": False, "meanAcceptedLength": None}},
        True,
    ),
    (
        "over 60 tokens that says nothing",
        {"tokensPerSecond": 1.0, "speculation": {"drafted": False, "meanAcceptedLength": None}},
        False,
    ),
    ("more load, the same replicas", {"decision": {"load": 1.9, "message": "still two"}}, False),
    ("another number of replicas", {"decision": {"desiredReplicas": 3}}, True),
    ("another signal", {"decision": {"signal": "QueueLength"}}, True),
    ("an objective cannot be met", {"decision": {"unreachable": "floor 12 ms"}}, True),
    ("another load; the traffic tells the speed-up", {"running": 32.0}, False),
    ("something would serve better", {"advice": {"draftLenSchedule": [STEP], "gain": 1.2, "message": ""}}, True),
]


@pytest.mark.parametrize(("reason", "change", "wanted"), MATERIAL, ids=[row[0] for row in MATERIAL])
def test_material(reason: str, change: dict[str, Any], wanted: bool) -> None:
    assert material(report(), report(**change)) is wanted, reason


MOST = {"desiredReplicas": 8, "signal": "Demand", "value": 3000.0, "target": 900.0, "capacityPerReplica": 900.0}
DECISIONS: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    # why, what is told, what differs, whether it is news
    ("a sixth more is asked for", MOST, {"value": 3500.0}, False),
    ("a fifth more", MOST, {"value": 3600.0}, True),
    ("a fifth less", MOST, {"value": 2400.0}, True),
    ("a replica can do a sixth less", MOST, {"capacityPerReplica": 750.0, "target": 750.0}, False),
    (
        "acceptance falls: it can do a third, at maxReplicas",
        MOST,
        {"capacityPerReplica": 300.0, "target": 300.0},
        True,
    ),
    ("what it can do is not known any more", MOST, {"capacityPerReplica": None}, False),
    ("it is known now", {**MOST, "capacityPerReplica": None}, {"capacityPerReplica": 900.0}, True),
    ("in other words", MOST, {"message": "eight, at most"}, False),
    ("a fifth of a replica's capacity more", {**MOST, "value": 20.0}, {"value": 200.0}, True),
    ("ten times as much of little: chance", {**MOST, "value": 10.0}, {"value": 100.0}, False),
    ("at 0 replicas nothing is held against anything", {**MOST, "value": 0.0, "target": None}, {}, False),
]


@pytest.mark.parametrize(("reason", "before", "change", "wanted"), DECISIONS, ids=[row[0] for row in DECISIONS])
def test_a_decision_for_as_many_replicas_is_news_by_its_numbers(
    reason: str, before: dict[str, Any], change: dict[str, Any], wanted: bool
) -> None:
    then, now = report(decision=before), report(decision={**before, **change})
    assert material(then, now) is wanted, reason
    assert scaling_moved(autoscaling_status(then), autoscaling_status(now)) is wanted, "status says the same"
    assert not material(then, quiet(decision={**before, **change})), "a service without traffic is not written"


LOADS: list[tuple[str, dict[str, Any], bool]] = [
    ("a little more", {"running": 15.0}, False),
    ("twice as many a replica: another load of a benchmark may be nearer", {"running": 16.0}, True),
    ("half as many", {"running": 4.0}, True),
    ("in twice as many replicas as much each", {"running": 16.0, "pods": 4}, False),
    ("a pause is no load", {"running": 0.0, "tokensPerSecond": 0.0}, False),
    ("nobody tells", {"running": None}, False),
]


@pytest.mark.parametrize(("reason", "change", "wanted"), LOADS, ids=[row[0] for row in LOADS])
def test_another_load_is_news_where_the_traffic_shows_no_speedup(
    reason: str, change: dict[str, Any], wanted: bool
) -> None:
    untold = {"worth": {"speedup": None}}
    assert material(report(**untold), report(**untold, **change)) is wanted, reason
    fewer, one = report(**untold, running=0.2), report(**untold, running=2.0)
    assert not material(fewer, one), "up to one at once loads are alike"


def test_why_the_speedup_is_not_known_is_news() -> None:
    few, alone = (report(worth={"speedup": None, "message": message}) for message in ("too few", "no step alone"))
    assert material(few, alone)
    assert not material(few, few)
    told = update(update(None, few, 0.0), alone, 60.0)
    assert told.report.worth.message == "no step alone"


def test_figures_of_other_revisions_are_shown_at_once_and_not_mixed_with_those_of_before() -> None:
    old, new = report(serving=["a"]), quiet(serving=["b"])
    assert update(update(None, old, 0.0), new, 1.0).report == new
    none = quiet(serving=[], pods=0)
    kept = update(update(None, old, 0.0), none, 60.0).report
    assert (kept.serving, kept.worth) == (("a",), old.worth), "no pod is Ready: nothing else is known"


def test_why_nothing_is_drafted_is_news() -> None:
    """A load above the schedule's last step, and then below it: the engine should draft again."""

    def off(length: float | None, failures: int = 0) -> ServiceReport:
        nothing = {"drafted": False, "meanAcceptedLength": None, "acceptanceRate": None}
        return report(speculation={**nothing, "askedLength": length, "draftFailures": failures})

    assert not material(off(4), off(2))
    assert material(off(0), off(4))
    assert material(off(4), off(0))
    assert material(off(None), off(None, failures=3))
    assert not material(report(), report(speculation={"askedLength": 0})), "while tokens are drafted it says nothing"


def test_advice_whose_gain_moves_is_no_news() -> None:
    advised = [report(advice={"draftLenSchedule": [STEP], "gain": g, "message": str(g)}) for g in (1.2, 1.3)]
    assert not material(*advised)


DRAFTING: list[tuple[str, dict[str, Any], bool | None]] = [
    ("draft tokens were counted", {}, True),
    ("none counted, and more than a token a step", {"speculation": {"drafted": None}}, True),
    ("a token a step", {"speculation": {"drafted": None, "meanAcceptedLength": 1.0}}, False),
    ("nothing is told", {"speculation": {"drafted": None, "meanAcceptedLength": None}}, None),
]


@pytest.mark.parametrize(("reason", "change", "wanted"), DRAFTING, ids=[row[0] for row in DRAFTING])
def test_drafting(reason: str, change: dict[str, Any], wanted: bool | None) -> None:
    assert drafting(report(**change)) is wanted, reason


def test_figures_are_rounded_to_what_is_read() -> None:
    shown = speculation_status(report(speculation={"acceptanceRate": 0.123456, "meanAcceptedLength": 1.23456}))
    assert shown is not None
    assert (shown.acceptance_rate, shown.mean_accepted_length) == (0.123, 1.23)
    assert speculation_status(quiet()) is None, "absent, not 0"


def after(*steps: tuple[float, ServiceReport]) -> ShownReport:
    told: ShownReport | None = None
    for at, now in steps:
        told = update(told, now, at)
    assert told is not None
    return told


COLLAPSED = report(speculation={"acceptanceRate": 0.2})
HIGHER = report(speculation={"acceptanceRate": 0.9})


def test_at_most_once_a_minute() -> None:
    assert after((0, report()), (15, COLLAPSED)).report == report(), "not yet"
    late = after((0, report()), (15, COLLAPSED), (SHOW_SECONDS, COLLAPSED))
    assert late.report == COLLAPSED, "and not lost"
    assert after((0, report()), (15, COLLAPSED), (SHOW_SECONDS, report())).shown_at == 0, (
        "a dip that is over is no news"
    )
    assert after((0, report()), (60, COLLAPSED), (119, HIGHER)).report == COLLAPSED


def test_slow_drift_adds_up() -> None:
    steps = [(60.0 * n, report(speculation={"acceptanceRate": 0.75 + 0.004 * n})) for n in range(4)]
    assert after(*steps[:3]).shown_at == 0
    assert after(*steps).shown_at == 180


def test_without_traffic_nothing_is_told_but_once_that_there_is_none() -> None:
    told = after((0, report()), (60, quiet()), (120, quiet()))
    assert (told.report, told.idle, told.shown_at) == (report(), False, 0)
    told = update(told, quiet(), IDLE_SECONDS)
    assert (told.report.speculation, told.idle) == (report().speculation, True), "its figures stay"
    later = update(told, quiet(), 10 * IDLE_SECONDS)
    assert later == told
    assert not update(later, report(), 10 * IDLE_SECONDS + 60).idle


def test_a_decision_of_a_quiet_window_keeps_the_figures() -> None:
    fewer = quiet(decision={"desiredReplicas": 1})
    told = after((0, report()), (60, fewer))
    assert told.report.decision == fewer.decision
    assert told.report.speculation == report().speculation


def test_a_service_that_was_made_anew_has_no_figures_of_the_old_one() -> None:
    told = after((0, report(uid="old")), (15, quiet(uid="new")))
    assert told.report == quiet(uid="new")
    assert told.shown_at == 15, "at once: it was never told before"


def judged(unreachable: str, **changes: Any) -> ServiceReport:
    goals = {"objectives": {"timeToFirstToken": 0.005}}
    return report(**{**goals, "decision": {"unreachable": unreachable}, **changes})


OUT, UNSAID = judged("5ms is below 20ms"), judged("")
OTHER_GOAL = judged("", objectives={"timeToFirstToken": 1.0})
REACH: list[tuple[str, list[tuple[float, ServiceReport]], bool]] = [
    # reason, reports by time, whether it is told last that an objective is out of reach
    ("one of two servers does not know it", [(0, OUT), (60, UNSAID), (120, OUT), (180, UNSAID)], True),
    ("nor while other things are told", [(0, OUT), (60, judged("", worth=sure(0.5)))], True),
    ("none says it for ten minutes", [(0, OUT), (300, OUT), (600, UNSAID), (900, UNSAID)], False),
    ("it is another objective", [(0, OUT), (60, OTHER_GOAL)], False),
    ("autoscaling is switched off", [(0, OUT), (60, judged("", decision=None, worth=sure(0.5)))], False),
    ("it was never said", [(0, UNSAID), (60, UNSAID)], False),
]


@pytest.mark.parametrize(("reason", "reports", "wanted"), REACH, ids=[row[0] for row in REACH])
def test_an_objective_out_of_reach_stays_so_for_a_while(
    reason: str, reports: list[tuple[float, ServiceReport]], wanted: bool
) -> None:
    decision = after(*reports).report.decision
    assert bool(decision and decision.unreachable) is wanted, reason


BLIND = quiet(pods=0, unknown=2, tokensPerSecond=None)
SIGHT: list[tuple[str, list[tuple[float, ServiceReport]], bool]] = [
    # reason, reports by time, whether it is told last that no pod tells figures
    ("pods that are Ready and not read twice yet", [(0, quiet(pods=0)), (300, BLIND), (330, report())], False),
    ("for two minutes they may be so", [(0, report()), (60, BLIND), (179, BLIND)], False),
    ("for longer they cannot be read", [(0, report()), (60, BLIND), (180, BLIND)], True),
    ("they can be read again, and there is no traffic", [(0, BLIND), (60, quiet())], False),
    ("some do not tell", [(0, report()), (300, report(unknown=1))], False),
]


@pytest.mark.parametrize(("reason", "reports", "blind"), SIGHT, ids=[row[0] for row in SIGHT])
def test_that_no_pod_tells_figures_is_told_when_it_lasts(
    reason: str, reports: list[tuple[float, ServiceReport]], blind: bool
) -> None:
    assert after(*reports).report.blind is blind, reason


FIRST: list[tuple[str, list[tuple[float, ServiceReport]], tuple[int, int, bool]]] = [
    # reason, reports by time, what is shown last: pods, unknown, blind
    ("its first pods were not read yet", [(0, BLIND)], (0, 2, False)),
    ("nor for two minutes", [(0, BLIND), (119, BLIND)], (0, 2, False)),
    ("after which they cannot be read", [(0, BLIND), (119, BLIND), (120, BLIND)], (0, 2, True)),
    ("pods after none, without traffic", [(0, quiet(pods=0)), (30, BLIND), (60, quiet())], (2, 0, False)),
    ("none after pods, without traffic", [(0, quiet()), (60, quiet(pods=0))], (0, 0, False)),
    ("pods that could not be read are gone", [(0, BLIND), (120, BLIND), (180, quiet(pods=0))], (0, 0, False)),
]


@pytest.mark.parametrize(("reason", "reports", "wanted"), FIRST, ids=[row[0] for row in FIRST])
def test_a_service_starts_without_an_alarm(
    reason: str, reports: list[tuple[float, ServiceReport]], wanted: tuple[int, int, bool]
) -> None:
    shown = after(*reports)
    assert (shown.report.pods, shown.report.unknown, shown.blind) == wanted, reason


def test_who_sees_nothing_does_not_say_that_there_is_no_traffic() -> None:
    told = after((0, report()), (15, BLIND), (IDLE_SECONDS, BLIND), (2 * IDLE_SECONDS, BLIND))
    assert (told.report.blind, told.idle) == (True, False)
    assert told.report.speculation == report().speculation, "its figures stay"
    assert update(told, quiet(), 2 * IDLE_SECONDS + 60).idle
