"""Rounds over stand-ins for discovery and pods: what goes up on the board, and what one bad service costs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.api.types import SpeculativeInferenceService
from tandem.metrics.capacity.planner import Planner
from tandem.metrics.report import Reports
from tandem.metrics.telemetry.exposition import parse
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from tandem.metrics_server.board import Board
from tandem.metrics_server.inventory import Known
from tandem.metrics_server.loop import Loop
from tandem.settings import MetricsServerSettings

PAGE = """\
# TYPE tandem_requests_running gauge
tandem_requests_running{{model="speculative_bls",version="1"}} {running}
# TYPE tandem_generation_tokens_total counter
tandem_generation_tokens_total{{model="speculative_bls",version="1"}} {tokens}
# TYPE tandem_spec_decode_num_drafts_total counter
tandem_spec_decode_num_drafts_total{{model="speculative_bls",version="1"}} {rounds}
# TYPE tandem_spec_decode_num_draft_tokens_total counter
tandem_spec_decode_num_draft_tokens_total{{model="speculative_bls",version="1"}} {drafted}
# TYPE tandem_spec_decode_num_accepted_tokens_total counter
tandem_spec_decode_num_accepted_tokens_total{{model="speculative_bls",version="1"}} {accepted}
# TYPE tandem_spec_decode_num_accepted_tokens_per_pos_total counter
tandem_spec_decode_num_accepted_tokens_per_pos_total{{model="speculative_bls",version="1",position="0"}} {first}
tandem_spec_decode_num_accepted_tokens_per_pos_total{{model="speculative_bls",version="1",position="1"}} {second}
"""


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class FakeCluster:
    """Discovery and source in one: services with a pod each, whose pages the test's counters make."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.services: list[Known] = []
        self.silent: set[str] = set()
        self.go_while_read: set[str] = set()
        self.rounds = 0
        self.hangs = False

    def add(self, name: str, **autoscaling: int) -> None:
        raw = yaml.safe_load(SERVICE)
        raw["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        raw["spec"] |= {"autoscaling": autoscaling} if autoscaling else {}
        target = ScrapeTarget(f"pod-{name}", "team-a", f"{name}-server-0", "10.0.0.7")
        service = SpeculativeInferenceService.model_validate(raw)
        self.services.append(Known(service, (target,), Replicas(1, 0, 1)))

    def known(self) -> Sequence[Known]:
        return list(self.services)

    async def collect(self, targets: Sequence[ScrapeTarget], store: Store) -> Mapping[str, str]:
        self.rounds += 1
        n = 1 if self.hangs else self.rounds
        page = PAGE.format(
            running=3, tokens=300 * n, rounds=100 * n, drafted=200 * n, accepted=120 * n, first=80 * n, second=40 * n
        )
        for target in targets:
            if target.name not in self.silent:
                store.add(target.uid, self.clock.now, parse(page.encode()))
        self.services = [known for known in self.services if known.service.name not in self.go_while_read]
        return {target.uid: "answered 404 instead of 200" for target in targets if target.name in self.silent}


SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {namespace: team-a}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 2}
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> FakeCluster:
    return FakeCluster(clock)


@pytest.fixture
def board() -> Board:
    return Board(120)


@pytest.fixture
def loop(cluster: FakeCluster, board: Board, clock: Clock) -> Loop:
    return Loop(cluster, cluster, board, MetricsServerSettings(), clock)


async def rounds(loop: Loop, clock: Clock, count: int) -> None:
    for _ in range(count):
        clock.now += 15
        await loop.round()


async def test_figures_of_a_window_become_a_report(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama")
    await rounds(loop, clock, 5)
    report = board.get("team-a", "llama")
    assert report is not None
    assert (report.pods, report.unknown, report.running, report.tokens_per_second) == (1, 0, 3, 20)
    assert report.speculation.acceptance_rate == pytest.approx(0.6)
    assert report.speculation.mean_accepted_length == pytest.approx(2.2)
    assert report.speculation.draft_length == pytest.approx(2)
    assert report.speculation.accepted_per_position == pytest.approx((0.8, 0.5)), "each given the one before"
    assert report.speculation.drafted is True
    assert report.speculation.samples == 400
    assert report.observed_at == "1970-01-12T13:47:55Z"
    assert report.decision is None, "it asks for no autoscaling"


async def test_a_minimum_accepted_length_is_held_against_each_revision(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama")
    (known,) = cluster.services
    spec = known.service.spec
    spec = spec.model_copy(update={"speculation": spec.speculation.model_copy(update={"min_accepted_length": 1.5})})
    targets = tuple(
        ScrapeTarget(f"pod-{n}", "team-a", f"llama-server-{n}", "10.0.0.7", revision=digest)
        for n, digest in enumerate(("old", "new", "new"))
    )
    service = known.service.model_copy(update={"spec": spec})
    cluster.services = [Known(service, targets, Replicas(3, 0, 3))]
    cluster.silent = {"llama-server-0"}
    await rounds(loop, clock, 5)
    report = board.get("team-a", "llama")
    assert report is not None
    assert report.min_accepted_length == 1.5
    assert report.serving == ("new", "old")
    assert "several revisions serve" in report.worth.message
    found = {each.revision: each.speculation for each in report.revisions}
    assert found["new"].mean_accepted_length == pytest.approx(2.2)
    assert found["new"].samples == 800, "of both pods"
    assert found["old"].mean_accepted_length is None, "its pod says nothing"


async def test_without_a_minimum_no_revision_is_judged(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama")
    await rounds(loop, clock, 5)
    report = board.get("team-a", "llama")
    assert report is not None
    assert (report.min_accepted_length, report.revisions) == (None, ())


async def test_a_service_that_asks_for_autoscaling_gets_a_decision(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama", minReplicas=2, maxReplicas=4)
    await rounds(loop, clock, 5)
    report = board.get("team-a", "llama")
    assert report is not None
    assert report.decision is not None
    assert report.decision.load is not None
    assert 2 <= report.decision.load <= 4


async def test_before_two_readings_nothing_is_known(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama", maxReplicas=4)
    await rounds(loop, clock, 1)
    report = board.get("team-a", "llama")
    assert report is not None
    assert (report.pods, report.unknown, report.tokens_per_second) == (0, 1, None)
    assert report.speculation.drafted is None
    assert report.decision is None or report.decision.load is None


async def test_a_pod_that_tells_nothing_is_named(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    cluster.add("llama")
    cluster.add("mute")
    cluster.silent = {"mute-server-0"}
    await rounds(loop, clock, 3)
    mute, llama = board.get("team-a", "mute"), board.get("team-a", "llama")
    assert mute is not None
    assert llama is not None
    assert mute.problems == ("mute-server-0: answered 404 instead of 200",)
    assert (mute.pods, mute.unknown, llama.pods, llama.problems) == (0, 1, 1, ())


async def test_a_pod_that_hangs_is_named(loop: Loop, cluster: FakeCluster, board: Board, clock: Clock) -> None:
    cluster.add("llama", maxReplicas=4)
    cluster.hangs = True
    await rounds(loop, clock, 5)
    report = board.get("team-a", "llama")
    assert report is not None
    assert report.problems == (
        "llama-server-0: sequences run and get no tokens: its engine, or the process that reports it, hangs",
    )
    assert (report.pods, report.unknown, report.blind) == (0, 1, True)
    assert report.decision is not None
    assert report.decision.signal == "Hold"


async def test_a_defect_that_one_service_finds_costs_the_others_nothing(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add("bad", maxReplicas=2)
    cluster.add("good", maxReplicas=4)
    update = Planner.update

    def broken(planner: Planner, figures: object, replicas: object, spec: object, serving: object) -> object:
        if spec is cluster.services[0].service.spec:
            raise ZeroDivisionError
        return update(planner, figures, replicas, spec, serving)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Planner, "update", broken)
    await rounds(loop, clock, 3)
    bad, good = board.get("team-a", "bad"), board.get("team-a", "good")
    assert bad is not None
    assert good is not None
    assert (bad.decision, bad.running) == (None, 3), "its figures are told"
    assert good.decision is not None


async def test_a_policy_that_failed_starts_anew(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it learned may be what fails, and then did so for as long as the process lives."""
    cluster.add("llama", maxReplicas=4)
    update, spoilt = Planner.update, list[Planner]()

    def fails_from_the_third_on(planner: Planner, *seen: Any) -> Any:
        if cluster.rounds == 3:
            spoilt.append(planner)
        if planner in spoilt:
            raise ZeroDivisionError
        return update(planner, *seen)

    monkeypatch.setattr(Planner, "update", fails_from_the_third_on)
    told = []
    for _ in range(5):
        await rounds(loop, clock, 1)
        told.append(board.list()[0].decision is not None)
    assert told == [True, True, False, True, True]


NONSENSE = (0.0, 5e-324, 1e-200, 0.5, 1.0, 3e4, 2.0**53)


@settings(max_examples=200)
@given(st.lists(st.tuples(*[st.sampled_from(NONSENSE)] * 6), min_size=2, max_size=4))
def test_whatever_a_pod_tells_the_reports_can_be_read(said: list[tuple[float, ...]]) -> None:
    """One that the operator cannot read would cost it those of all services."""
    clock, board = Clock(), Board(120)
    cluster = FakeCluster(clock)
    cluster.add("llama", maxReplicas=4)
    fields = ("running", "tokens", "rounds", "drafted", "accepted", "first")
    totals = [0.0] * len(fields)

    async def collect(targets: Sequence[ScrapeTarget], store: Store) -> Mapping[str, str]:
        totals[:] = [min(2.0**53, total + more) for total, more in zip(totals, said[cluster.rounds], strict=True)]
        cluster.rounds += 1
        page = PAGE.format(**dict(zip(fields, totals, strict=True)), second=said[0][5])
        store.add(targets[0].uid, clock.now, parse(page.encode()))
        return {}

    cluster.collect = collect  # type: ignore[method-assign]
    asyncio.run(rounds(Loop(cluster, cluster, board, MetricsServerSettings(), clock), clock, len(said)))
    (report,) = board.list()
    told = Reports(items=(report,)).model_dump_json(by_alias=True, exclude_none=True)
    assert Reports.model_validate_json(told).items[0].namespace == "team-a"
    assert all(0 <= p <= 1 for p in report.speculation.accepted_per_position)


async def test_a_service_that_goes_is_forgotten(loop: Loop, cluster: FakeCluster, board: Board, clock: Clock) -> None:
    cluster.add("llama")
    await rounds(loop, clock, 3)
    cluster.services.clear()
    await rounds(loop, clock, 1)
    assert board.list() == []
    assert not loop._planners, "nor does its policy stay in memory"
    cluster.add("llama")
    await rounds(loop, clock, 1)
    assert board.list()[0].pods == 0, "its pods are new"


async def test_a_service_that_goes_while_pods_are_read_is_not_told_of(
    loop: Loop, cluster: FakeCluster, board: Board, clock: Clock
) -> None:
    """Reading takes seconds."""
    for name in ("llama", "brief"):
        cluster.add(name)
    cluster.go_while_read.add("brief")
    await rounds(loop, clock, 1)
    assert [report.name for report in board.list()] == ["llama"]


async def test_questions_are_answered_while_services_are_judged(loop: Loop, cluster: FakeCluster) -> None:
    """A round of many services takes long; an autoscaler that asks meanwhile does not wait for all of them."""
    for number in range(20):
        cluster.add(f"service-{number}")
    turns = 0

    async def ask() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    asking = asyncio.create_task(ask())
    await loop.round()
    asking.cancel()
    assert turns >= 19
