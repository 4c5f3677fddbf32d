"""The autoscaling benchmark: its autoscaler, replicas, oracle and verdicts."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.autoscale import contest, costs, scalers, traces
from bench.autoscale.contest import CONSTANT, Game, Hindsight, Outcome, Result, Score
from bench.autoscale.hpa import Hpa
from bench.autoscale.replica import Replica, Request
from bench.autoscale.simulate import WARM_UP, Course, Service, Setting
from bench.autoscale.traces import Moment, Requests, Trace
from bench.bls.in_flight import Costs
from tandem.metrics.telemetry.figures import Figures, Replicas

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("current", "values", "wanted", "reason"),
    [
        (4, [4.3], 4, "within the tolerance of 10%"),
        (4, [4.5], 5, "rounded up"),
        (4, [None], 4, "no metric: nothing changes"),
        (4, [2.0, 1.0], 2, "down to the highest of 240 s"),
        (2, [9.0], 6, "four more in a minute at most"),
        (6, [30.0], 10, "maxReplicas"),
        (1, [0.0], 1, "minReplicas"),
    ],
)
def test_hpa(current: int, values: list[float | None], wanted: int, reason: str) -> None:
    hpa = Hpa(1, 10)
    for i, value in enumerate(values):
        found = hpa.sync(15.0 * i, current, value)
    assert found == wanted, reason


def test_hpa_goes_down_when_the_high_recommendation_is_old() -> None:
    hpa = Hpa(1, 10)
    found = [hpa.sync(15.0 * i, 6, 6.0 if i == 0 else 2.0) for i in range(20)]
    assert found[:16] == [6] * 16
    assert found[16:] == [2] * 4


def test_step_costs_are_the_benchmarks() -> None:
    speed = costs.speed(8, 0.8, 1.0, 4)
    draft, target = Costs(6.0, per_sequence=0.15), Costs(36.0, per_sequence=0.15, per_draft_token=0.15)
    assert speed.seconds == pytest.approx(4 * draft.step(8) + target.step(8, 32))
    assert speed.tau == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert costs.speed(8, 0.05, 1.0, None).k == 0


def test_a_replica_takes_the_time_of_its_steps() -> None:
    replica = Replica(0.0, 0.0, k=4)
    replica.become(0.0, Moment(0.0, acceptance=0.8))
    requests = [Request(0.0, 100.0, 500.0) for _ in range(2)]
    for request in requests:
        replica.take(0.0, request)
    held, speed = 2 * costs.prefill(100.0), costs.speed(2, 0.8, 1.0, 4)
    end = replica.next_end()
    assert end == pytest.approx(held + 500 * speed.itl)
    assert [request.ended for request in replica.finish(end)] == [end, end]
    told = replica.counters
    assert told.tokens == pytest.approx(1000)
    assert told.drafted == pytest.approx(4 * told.rounds)
    assert told.rounds + sum(told.accepted) == pytest.approx(told.tokens)
    assert told.itl_total == pytest.approx(2 * end)


def test_a_full_replica_lets_wait() -> None:
    replica = Replica(0.0, 0.0, k=0)
    requests = [Request(0.0, 10.0, 100.0 + i) for i in range(costs.PLACES + 1)]
    for request in requests:
        replica.take(0.0, request)
    assert (replica.running, len(replica.waiting)) == (costs.PLACES, 1)
    replica.finish(replica.next_end())
    assert len(replica.waiting) == 0
    assert requests[-1].first > requests[0].ended


def test_a_full_replica_refuses_who_waited_too_long() -> None:
    replica = Replica(0.0, 0.0, k=0, patience=1.0)
    for i in range(costs.PLACES + 1):
        replica.take(0.0, Request(0.0, 10.0, 100.0 + i))
    replica.finish(replica.next_end())
    assert (replica.running, len(replica.waiting), replica.counters.refused) == (costs.PLACES - 1, 0, 1)


def steady(rate: float, seconds: float = 1800.0, fall: float | None = None) -> tuple[Trace, Requests]:
    trace = Trace("steady", seconds, "", lambda t: Moment(rate, 0.2 if fall is not None and t >= fall else 0.8))
    return trace, traces.requests(trace, 1)


def test_our_policy_finds_the_replicas_of_a_steady_load() -> None:
    trace, requests = steady(3.5)
    setting = Setting(start=5, scaler=scalers.Tandem(scalers.specification(None, 16)))
    course = Service(trace, setting, 1).run(requests)
    assert course.replicas[-1][1] == 3
    assert course.attainment(scalers.TTFT, scalers.ITL) > 0.99


def test_a_collapse_of_acceptance_raises_replicas() -> None:
    trace, requests = steady(5.0, fall=1200.0, seconds=2400.0)
    setting = Setting(start=4, scaler=scalers.Tandem(scalers.specification(None, 16)))
    course = Service(trace, setting, 1).run(requests)
    assert [count for at, count in course.replicas if at < 1200][-1] == 4
    assert course.replicas[-1][1] > 4


def test_refusals_keep_the_others_in_time_and_bring_the_replicas() -> None:
    trace = Trace("step", 2400.0, "", lambda t: Moment(8.0 if t >= 900 else 3.5))
    requests = traces.requests(trace, 1)
    waits, refuses = (
        Service(
            trace, Setting(start=3, patience=patience, scaler=scalers.Tandem(scalers.specification(None, 16))), 1
        ).run(requests)
        for patience in (None, contest.PATIENCE)
    )
    kept = [course.attainment(scalers.TTFT, scalers.ITL) for course in (waits, refuses)]
    assert kept[1] > kept[0] + 0.1
    assert [count for at, count in refuses.replicas if at < 1100][-1] >= refuses.replicas[-1][1], "at once"


class Untold(scalers.Tandem):
    """Does not know how long a replica takes to start."""

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        return super().value(figures, replace(replicas, start_seconds=None))


def test_replicas_that_start_slowly_are_asked_for_in_time() -> None:
    trace = Trace("ramp", 4200.0, "", lambda t: Moment(3.0 + 6.0 * min(1.0, max(0.0, (t - 900) / 3000))))
    requests = traces.requests(trace, 1)
    told, untold = (
        Service(trace, Setting(cold_start=600.0, start=3, scaler=kind(scalers.specification(None, 16))), 1).run(
            requests
        )
        for kind in (scalers.Tandem, Untold)
    )
    assert told.attainment(scalers.TTFT, scalers.ITL) > untold.attainment(scalers.TTFT, scalers.ITL) + 0.02


class Blind:
    """Nobody tells the autoscaler anything."""

    def value(self, figures: Figures, replicas: Replicas) -> float | None:
        return None


def test_without_metrics_nothing_changes() -> None:
    trace, requests = steady(8.0, seconds=900.0)
    course = Service(trace, Setting(start=2, scaler=Blind()), 1).run(requests)
    assert course.replicas == [(0.0, 2)]
    assert course.hours == pytest.approx(2 * (900 - WARM_UP) / 3600, rel=0.01)


def test_the_oracle_is_ready_when_the_load_comes() -> None:
    trace = Trace("step", 3600.0, "", lambda t: Moment(8.0 if t >= 2000 else 2.0))
    plan = scalers.oracle(trace, 1.0, 240.0, 16)
    assert plan(1700.0) < plan(1800.0) == plan(3000.0)
    assert scalers.oracle(trace, 3.0, 240.0, 16)(3000.0) >= plan(3000.0)


def test_the_goals_are_kept_as_acceptance_collapses() -> None:
    """One seed of one trace, and a percent of grace: a change of the policy that costs more is seen before
    `python -m bench.autoscale compare` judges by five seeds of each."""
    game = Game("collapse", 6, 180.0)
    oracle = contest.hindsight(game)
    ours = contest.play(game, oracle, contest.OURS).score
    assert ours.attainment >= contest.ATTAINMENT - 0.01
    assert ours.hours <= contest.HOURS * oracle.outcome.score.hours
    assert ours.changes <= contest.CHANGES


@pytest.mark.parametrize("peak", [2, 3, 4])
def test_the_fewest_constant_replicas_are_found_from_wherever_the_search_begins(
    monkeypatch: pytest.MonkeyPatch, peak: int
) -> None:
    trace, _ = steady(3.0, seconds=1200.0)
    monkeypatch.setitem(traces.TRACES, "steady", lambda: trace)
    oracle = Hindsight(Outcome(Score(1.0, 1.0, 1.0), [(0.0, peak)]), 1.0)
    found = contest.play(Game("steady", 1, 180.0), oracle, CONSTANT)
    assert found.replicas == [(0.0, 3)]
    assert found.score.attainment >= contest.ATTAINMENT


@pytest.mark.parametrize(
    ("one", "other", "beats", "reason"),
    [
        ((0.995, 10.0), (0.992, 10.5), True, "both keep the objectives, fewer hours"),
        ((0.999, 10.0), (0.991, 10.0), False, "more than 99% counts for nothing"),
        ((0.95, 10.0), (0.90, 10.0), True, "better for as many hours"),
        ((0.95, 10.1), (0.90, 10.0), False, "better, but dearer"),
        ((0.90, 9.0), (0.95, 10.0), False, "cheaper, but worse"),
    ],
)
def test_who_beats_whom(one: tuple[float, float], other: tuple[float, float], beats: bool, reason: str) -> None:
    assert result("a", (*one, 0.0)).beats(result("b", (*other, 0.0))) is beats, reason


def result(name: str, *scores: tuple[float, float, float], simple: bool = False) -> Result:
    return Result(name, tuple(Score(*each) for each in scores), simple)


def test_a_median_stands_for_the_seeds() -> None:
    oracle = result(contest.ORACLE, (1.0, 10.0, 1.0), (1.0, 20.0, 1.0), (1.0, 10.0, 1.0))
    ours = result(contest.OURS, (0.999, 11.0, 3.0), (0.97, 21.0, 2.0), (0.995, 10.0, 9.0))
    assert contest.row(ours, oracle) == [contest.OURS, "99.50", "97.00", "11.0", "1.05", "3.0"]


def results(attainment: float, hours: float, changes: float) -> list[Result]:
    return [
        result(contest.ORACLE, (0.999, 100.0, 1.0)),
        result(contest.PRESENT, (0.97, 101.0, 1.0)),
        result(contest.OURS, (attainment, hours, changes)),
        result("HPA on queue", (0.98, 105.0, 9.0), simple=True),
    ]


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        ((0.995, 104.0, 3.0), []),
        (
            (0.975, 112.0, 7.0),
            [
                "97.5% of the requests within the objectives instead of 99% (without foresight: 97.0%)",
                "1.12 of the oracle's hours instead of 1.10",
                "7.0 changes an hour instead of 6",
                "HPA on queue is better",
            ],
        ),
    ],
)
def test_missed_goals_are_named(ours: tuple[float, float, float], missed: list[str]) -> None:
    assert contest.verdict(results(*ours)) == missed


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    from bench.autoscale import plots  # matplotlib is slow to import

    trace, requests = steady(1.0, seconds=900.0)
    course: Course = Service(trace, Setting(start=1, scaler=Blind()), 1).run(requests)
    for name in ("one.svg", "two.svg"):
        plots.draw(tmp_path / name, trace, {"none": course.replicas})
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b">replicas wanted<" in (tmp_path / "one.svg").read_bytes()
