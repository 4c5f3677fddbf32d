"""The whole policy over time: windows in, decisions out."""

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import pytest

from tandem.api.types import ServiceSpec
from tandem.metrics.capacity.planner import Planner, PlannerOutput
from tandem.metrics.report import ScalingDecision
from tandem.metrics.telemetry.families import ACCEPTED_PER_POSITION, COUNTERS, HISTOGRAMS
from tandem.metrics.telemetry.figures import Figures, Replicas
from tandem.metrics.telemetry.page import Page, Series
from tandem.metrics.telemetry.windows import Store
from unit.metrics.capacity.truth import Truth, figures, spec


@dataclass
class Watched:
    """A planner that sees a window every 15 s."""

    service: ServiceSpec = field(default_factory=spec)
    at: float = 1.8e9

    def __post_init__(self) -> None:
        self.planner = Planner(self.service)

    def see(self, window: Figures, replicas: Replicas, times: int = 1) -> PlannerOutput:
        for _ in range(times):
            self.at += 15.0
            made = self.planner.update(Figures(self.at, window.pods, window.unknown), replicas, self.service)
        return made

    def load(self, window: Figures, replicas: Replicas, times: int = 1) -> float:
        decision = self.see(window, replicas, times).decision
        assert decision is not None
        assert decision.load is not None
        return decision.load


def busy(rows: float, k: int = 3, acceptance: float = 0.8, pods: int = 3, unknown: int = 0) -> Figures:
    return figures(0.0, *[Truth().pod(rows, k, acceptance)] * pods, unknown=unknown)


def test_a_steady_load_is_steady() -> None:
    watched = Watched()
    watched.load(busy(20), Replicas(3), 40)
    loads = [watched.load(busy(20), Replicas(3)) for _ in range(40)]
    assert max(loads) == pytest.approx(min(loads), rel=0.01)


def test_a_collapse_of_acceptance_raises_replicas_at_constant_demand() -> None:
    watched = Watched()
    tokens = busy(24).rate("generation_tokens")
    assert tokens
    before = watched.load(busy(24), Replicas(3), 40)
    # The same tokens take more sequences at once when each is slower.
    rows = next(r / 10 for r in range(10, 640) if 3 * r / 10 / Truth().itl(r / 10, 1, 0.2) >= tokens)
    after = watched.load(busy(rows, 1, 0.2), Replicas(3), 8)
    assert busy(rows, 1, 0.2).rate("generation_tokens") == pytest.approx(tokens, rel=0.01)
    assert after > 1.2 * before


def test_a_fall_of_acceptance_is_met_before_it_is_over() -> None:
    watched, steady = Watched(), Watched()
    watched.load(busy(16), Replicas(3), 40)
    falling = [watched.load(busy(16, 3, acceptance), Replicas(3)) for acceptance in (0.75, 0.7, 0.65, 0.6)]
    at_last = steady.load(busy(16, 3, 0.6), Replicas(3), 40)
    assert falling[-1] > 1.1 * at_last


def test_slow_replicas_are_asked_for_earlier() -> None:
    asked = []
    for start in (60.0, 600.0):
        watched = Watched()
        watched.load(busy(28), Replicas(3), 20)  # so that its speed is known at all loads
        loads = [watched.load(busy(14 + i / 5), Replicas(3, start_seconds=start)) for i in range(60)]
        asked.append(next(i for i, load in enumerate(loads) if i > 20 and load > 2.8))
    assert asked[1] < asked[0]


@pytest.mark.parametrize("slower", [5, 30, 100])
def test_a_first_window_that_stalls_starts_no_replicas(slower: float) -> None:
    """The first requests of a new service: graphs are captured and kernels chosen while they wait."""
    usual, stalled = Watched(), Watched()
    for watched, factor in ((usual, 1.0), (stalled, slower)):
        truth = Truth(0.006 * factor, 0.00015 * factor, 0.036 * factor, 0.00015 * factor)
        watched.load(figures(0.0, truth.pod(3, 3, 0.8, seconds=15.0)), Replicas(1))
    loads = [
        (usual.load(busy(10, pods=1), Replicas(1)), stalled.load(busy(10, pods=1), Replicas(1))) for _ in range(8)
    ]
    assert all(cold == pytest.approx(warm, rel=0.1) for warm, cold in loads[1:]), loads


@pytest.mark.parametrize("back", [30.0, 7200.0, 1e9], ids=["half a minute", "a time zone", "from a wrong year"])
def test_a_clock_that_is_set_back_costs_a_window_and_no_more(back: float) -> None:
    """What came to pass before it, later than now, would else hold the guards and lead the trends until then."""
    queued = figures(0.0, *[Truth().pod(20, 3, 0.8, waiting=9)] * 3)
    asked = []
    for moved in (0.0, back):
        watched = Watched()
        watched.load(busy(20, pods=1), Replicas(1), 20)
        for i in range(10):
            watched.load(busy(8 + i, pods=1), Replicas(1))
        watched.load(busy(20), Replicas(3))
        watched.at -= moved
        asked.append((watched.load(busy(10), Replicas(3), 40), watched.load(queued, Replicas(3), 3)))
    assert asked[1] == pytest.approx(asked[0], rel=0.1)
    assert len(watched.planner._history._seen) < 10, "nor does it remember ever more"


def test_an_objective_that_nothing_keeps_brings_no_replicas() -> None:
    kept, unreachable = Watched(), Watched(spec(itl="10ms"))
    for watched in (kept, unreachable):
        watched.load(busy(20), Replicas(3), 40)
    made = unreachable.see(busy(20), Replicas(3)).decision
    assert made is not None
    assert made.unreachable
    assert made.load == pytest.approx(kept.load(busy(20), Replicas(3)), rel=0.01)


def test_an_objective_out_of_reach_is_named_until_more_is_known() -> None:
    watched = Watched(spec(ttft="5ms"))
    assert not watched.see(figures(0.0), Replicas(3)).decision.unreachable  # type: ignore[union-attr]
    watched.see(busy(1), Replicas(3), 20)
    late = figures(0.0, *[Truth().pod(20, 3, waiting=2.0, ttft=4.0)] * 3)
    for window in (late, figures(0.0, unknown=3), busy(20)):
        made = watched.see(window, Replicas(3)).decision
        assert made is not None
        assert made.unreachable.startswith("timeToFirstToken 5ms is below")
        assert made.signal != "TimeToFirstToken", "more replicas would not help"
    watched.service = spec(ttft="1s")
    made = watched.see(late, Replicas(3)).decision
    assert made is not None
    assert (made.unreachable, made.signal) == ("", "TimeToFirstToken")


def test_acceptance_alone_triggers_nothing() -> None:
    watched = Watched()
    watched.load(busy(1, pods=1), Replicas(1), 20)
    assert watched.load(busy(1, 1, 0.05, pods=1), Replicas(1), 8) == 1.0


def test_pods_that_load_cause_no_runaway() -> None:
    watched = Watched()
    watched.load(busy(31), Replicas(3), 20)
    full = figures(0.0, *[Truth().pod(32, 3, waiting=40, ttft=9.0)] * 3)
    first = watched.load(full, Replicas(3))
    assert first > 3
    for pending in (2, 4, 6):
        assert watched.load(full, Replicas(3, pending)) <= max(first * 1.3, 3 + pending)


@pytest.mark.parametrize(("before", "load"), [(9.0, 5.0), (7.0, 8.75)], ids=["drains", "stays"])
def test_a_queue_that_drains_brings_no_replicas(before: float, load: float) -> None:
    watched = Watched()
    watched.load(busy(20, pods=5), Replicas(5), 20)
    for waiting in (before, 7.0):
        found = watched.load(figures(0.0, *[Truth().pod(20, 3, waiting=waiting)] * 5), Replicas(5))
    assert found == pytest.approx(load)


def test_metrics_gone_hold_until_they_come_back() -> None:
    watched = Watched()
    before = watched.load(busy(20), Replicas(3), 20)
    gone = watched.see(figures(0.0, unknown=3), Replicas(3)).decision
    assert gone is not None
    assert (gone.signal, gone.load) == ("Hold", None)
    assert watched.load(busy(20), Replicas(3)) == pytest.approx(before, rel=0.02)


def test_one_unreachable_pod_is_as_busy_as_the_others() -> None:
    watched = Watched()
    all_told = watched.load(busy(20), Replicas(3), 20)
    assert watched.load(busy(20, pods=2, unknown=1), Replicas(3), 4) == pytest.approx(all_told, rel=0.03)


def telling(seconds: float) -> Page:
    """What a pod has told after so many seconds with 20 sequences at once."""
    pod = Truth().pod(20, 3, seconds=seconds)
    told = {Series(family): getattr(pod, name) for family, name in COUNTERS.items()}
    told |= {Series(ACCEPTED_PER_POSITION, key=i): value for i, value in enumerate(pod.accepted_per_position)}
    for family, name in HISTOGRAMS.items():
        if histogram := getattr(pod, name):
            upto = zip(histogram.bounds, accumulate(histogram.counts), strict=True)
            told |= {Series(family, "bucket", bound): value for bound, value in upto}
            told[Series(family, "sum")] = histogram.total
    return Page({series: value for series, value in told.items() if value is not None}, {"running": 20, "waiting": 0})


@pytest.mark.parametrize("frozen", [1, 3])
def test_pods_whose_pages_stand_still_take_no_replica_away(frozen: int) -> None:
    """Their engines hang: Triton is Ready, and answers what it answered before. It looks as if nothing were asked."""
    store, watched, made = Store(60), Watched(), list[ScalingDecision]()
    for number in range(60):
        for pod in range(3):
            seconds = 15.0 * (min(number, 40) if pod < frozen else number)
            store.add(str(pod), 15.0 * number, telling(60 + seconds))
        decision = watched.see(store.figures(["0", "1", "2"], 15.0 * number, 60), Replicas(3)).decision
        assert decision is not None
        made.append(decision)
    if frozen == 3:
        assert (made[-1].signal, made[-1].load) == ("Hold", None)
    else:
        assert made[-1].load == pytest.approx(made[40].load, rel=0.06)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e9])
@pytest.mark.parametrize("name", ["generation_tokens", "rounds", "draft_tokens", "accepted_tokens", "waiting"])
def test_nonsense_is_not_remembered(name: str, value: float) -> None:
    watched = Watched()
    before = watched.load(busy(20), Replicas(3), 20)
    wrong: dict[str, Any] = {name: value}
    pods = busy(20).pods
    watched.see(figures(0.0, pods[0], pods[1], replace(pods[2], **wrong)), Replicas(3))
    assert watched.load(busy(20), Replicas(3), 20) == pytest.approx(before, rel=0.1)


def test_no_traffic_is_the_minimum() -> None:
    assert Watched().load(figures(0.0, Truth().pod(0, 0)), Replicas(4), 4) == pytest.approx(1.0)


def test_without_autoscaling_nothing_is_decided() -> None:
    made = Watched(spec(scaling=False)).see(busy(20), Replicas(3), 20)
    assert made.decision is None
    assert made.worth.message


def test_another_draft_length_starts_anew_and_other_replicas_do_not() -> None:
    watched = Watched()
    made = watched.see(busy(20), Replicas(3), 20).decision
    assert made is not None
    watched.service = watched.service.model_copy(update={"replicas": 5})
    kept = watched.see(busy(0), Replicas(3)).decision
    assert kept is not None
    assert kept.capacity_per_replica, "idle pods tell no speed: it is known from before"
    watched.service = spec(2)
    faster = Truth(*(c / 2 for c in (0.006, 0.00015, 0.036, 0.00015)))
    anew = watched.see(figures(0.0, *[faster.pod(20, 2)] * 3), Replicas(3)).decision
    assert anew is not None
    assert anew.capacity_per_replica == pytest.approx(2 * (made.capacity_per_replica or 0), rel=0.1)


EDITS: list[tuple[str, dict[str, Any], bool]] = [
    ("how revisions are replaced", {"rollout": {"strategy": "Replace"}}, True),
    ("who may ask", {"serving": {"maxBatchSize": 32, "access": {"from": [{"podSelector": {}}]}}}, True),
    ("an annotation", {"podTemplate": {"metadata": {"annotations": {"team": "a"}}}}, True),
    ("where models are kept", {"storage": {"cache": {"claimName": "models"}}}, True),
    ("objectives", {"autoscaling": {"maxReplicas": 9}}, True),
    ("more places", {"serving": {"maxBatchSize": 48}}, False),
    ("the engine's environment", {"podTemplate": {"spec": {"containers": [{"name": "triton", "env": []}]}}}, False),
]


@pytest.mark.parametrize(("reason", "edit", "kept"), EDITS, ids=[row[0] for row in EDITS])
def test_what_was_learned_stays_unless_an_edit_may_change_the_speed(
    reason: str, edit: dict[str, Any], kept: bool
) -> None:
    watched = Watched()
    watched.see(busy(20), Replicas(3), 20)
    watched.service = ServiceSpec.model_validate({**watched.service.model_dump(by_alias=True), **edit})
    made = watched.see(busy(0), Replicas(3)).decision
    assert made is not None
    assert (made.capacity_per_replica is not None) is kept, "idle pods tell no speed: it is known from before"


def test_the_same_figures_give_the_same_decisions() -> None:
    one, other = Watched(), Watched()
    for rows in (2, 9, 17, 30, 12):
        assert one.see(busy(rows), Replicas(3), 5) == other.see(busy(rows), Replicas(3), 5)


def test_a_schedule_is_advised() -> None:
    service = spec(4, mode="LLMAPI", maxConcurrency=12, places=32)
    watched = Watched(service)
    steep = Truth(d0=0.003, d1=0.0002, v0=0.02, v1=0.0015)
    for _ in range(60):
        watched.see(figures(0.0, steep.pod(24, 0, 0.5)), Replicas(1))
        made = watched.see(figures(0.0, steep.pod(11, 4, 0.5)), Replicas(1))
    assert made.advice is not None
    assert made.advice.draft_len_schedule[0].draft_len == 4
    assert made.advice.gain > 1.1
