"""Replicas from demand, capacity and objectives."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.autoscale.hpa import Hpa
from tandem.api.types.autoscaling import Keda
from tandem.metrics.capacity.demand import Demand
from tandem.metrics.capacity.model import Curve
from tandem.metrics.capacity.policy import Bounds, PolicyInputs, bounds, decide, utilization
from tandem.metrics.report import ScalingDecision
from tandem.metrics.telemetry.figures import Figures, Replicas
from unit.metrics.capacity.truth import Truth, figures, spec

LIMITS = Bounds(least=1, most=10, ttft=1.0, itl=0.05, queue=4, places=32)
DEMAND = Demand(arriving=3400, running=90, waiting=0)
QUIET = figures(0.0, Truth().pod(30, 2))


def curve(acceptance: float = 0.8, lengths: range = range(7)) -> Curve:
    """The true one."""
    loads = [min((Truth().itl(rows, k, acceptance), k) for k in lengths) for rows in range(1, 33)]
    return Curve(np.array([k for _, k in loads]), np.array([itl for itl, _ in loads]))


def decision(
    demand: Demand | None = DEMAND,
    *,
    limits: Bounds = LIMITS,
    known: Curve | None = curve(),  # noqa: B008
    seen: Figures = QUIET,
    ready: int = 3,
    pending: int = 0,
    wanted: int | None = None,
    newcomers: int = 0,
    drains: bool = False,
    ahead: float = 0.0,
) -> ScalingDecision:
    replicas = Replicas(ready, pending, ready + pending if wanted is None else wanted)
    situation = PolicyInputs(limits, seen, replicas, demand, newcomers, drains)
    return decide(situation, known, ahead)


def test_explains_itself() -> None:
    made = decision()
    assert made.signal == "Demand"
    assert made.value == 3400
    assert made.capacity_per_replica == made.target == pytest.approx(957, abs=1)
    assert made.desired_replicas == 4
    assert made.message == (
        "3400 tokens/s are requested; a replica generates 957 with 83% of 32 sequences at a time"
        " (full: draft length 2, 30 ms between tokens)"
    )
    assert decision(ahead=4.52).message.endswith("; as demand and acceptance change, 4.5 replicas will be needed")
    assert decision(ahead=3.0).message == made.message


def test_explains_what_the_kv_caches_ask_for() -> None:
    made = decision(seen=HELD)
    assert (made.value, made.target, made.desired_replicas) == (1800, 400, 5)
    assert made.capacity_per_replica == pytest.approx(957, abs=1)  # tokens/s, as ever
    assert made.message == "sequences hold 1800 blocks of KV cache; a replica has 500, of which 80% are used"


SLOW = figures(0.0, Truth().pod(30, 2, ttft=4.0, waiting=3.0))
LATE = figures(0.0, Truth(v0=0.17).pod(30, 2))
HELD, ROOMY = (
    figures(0.0, *[replace(Truth().pod(30, 2), kv_blocks=blocks, kv_blocks_used=300, engine_requests=15)] * 3)
    for blocks in (500.0, 5000.0)
)


@pytest.mark.parametrize(
    ("changes", "signal", "load", "reason"),
    [
        ({}, "Demand", 3.55, "3400 tokens/s, 957 a replica"),
        ({"demand": Demand(300, 8, 0)}, "Demand", 1.0, "never below minReplicas"),
        ({"demand": Demand(30000, 90, 0)}, "Demand", 10.0, "never above maxReplicas"),
        ({"demand": Demand(0, 0, 0)}, "Demand", 1.0, "no traffic"),
        ({"ahead": 4.5}, "Demand", 4.5, "a rising demand asks for what it will be"),
        ({"demand": replace(DEMAND, waiting=15)}, "QueueLength", 3.75, "5 wait for each of 3, 4 may"),
        (
            {"demand": replace(DEMAND, waiting=300), "ready": 4, "drains": True},
            "QueueLength",
            4.0,
            "gone before a replica that starts now could help",
        ),
        ({"demand": replace(DEMAND, waiting=300)}, "QueueLength", 6.0, "at most twice as many at once"),
        (
            {"demand": replace(DEMAND, waiting=300), "pending": 2},
            "QueueLength",
            5.0,
            "two are on their way: wait for them",
        ),
        (
            {"demand": replace(DEMAND, waiting=300), "pending": 1},
            "QueueLength",
            4.0,
            "one is on its way: wait for it",
        ),
        (
            {"demand": replace(DEMAND, waiting=300), "ready": 4, "newcomers": 1},
            "QueueLength",
            4.0,
            "one came within the window and had no time to help: wait",
        ),
        ({"seen": SLOW, "demand": replace(DEMAND, waiting=3)}, "TimeToFirstToken", 6.0, "late, and requests wait"),
        ({"seen": SLOW}, "Demand", 3.55, "late, but nothing waits: more replicas would not help"),
        ({"seen": LATE}, "InterTokenLatency", 5.03, "tokens come too slowly"),
        ({"seen": HELD}, "KvCache", 4.5, "90 sequences of 20 blocks, 80% of 500 a replica"),
        ({"seen": HELD, "pending": 1}, "KvCache", 4.5, "one is on its way and will not do: no guard that waits"),
        ({"seen": ROOMY}, "Demand", 3.55, "the caches have room for more than is asked of the steps"),
        ({"known": None}, "Demand", 3.52, "speed not known yet: 90 sequences over 80% of 32 places"),
        ({"ready": 4, "demand": replace(DEMAND, arriving=2790)}, "Demand", 3.04, "three would have no reserve: stay"),
        (
            {"ready": 3, "demand": replace(DEMAND, arriving=2890)},
            "Demand",
            3.05,
            "2% more: not worth a start",
        ),
        (
            {"ready": 3, "demand": replace(DEMAND, arriving=2990)},
            "Demand",
            3.3,
            "5% more: told as more than 10%, which an autoscaler acts on",
        ),
        ({"ready": 4, "demand": replace(DEMAND, arriving=2500)}, "Demand", 2.76, "three have a reserve: one goes"),
        (
            {"ready": 4, "pending": 1, "wanted": 4, "demand": replace(DEMAND, arriving=3790)},
            "Demand",
            4.0,
            "a rollout's fifth pod is no replica: four do, and stay",
        ),
        (
            {"ready": 4, "wanted": 3, "demand": replace(DEMAND, arriving=2990)},
            "Demand",
            3.3,
            "nor does it, while it serves, do for the three that are too few",
        ),
        (
            {"ready": 3, "pending": 1, "wanted": 3, "demand": replace(DEMAND, arriving=2500, waiting=300)},
            "QueueLength",
            3.0,
            "nor is it on its way to help",
        ),
        (
            {"ready": 4, "wanted": 0, "demand": replace(DEMAND, arriving=2500)},
            "Demand",
            2.76,
            "scaled to 0, and they still serve: they are as many as they are",
        ),
    ],
)
def test_signals(changes: dict[str, object], signal: str, load: float, reason: str) -> None:
    made = decision(**changes)  # type: ignore[arg-type]
    assert made.signal == signal, (made, reason)
    assert made.load == pytest.approx(load, abs=0.02), (made, reason)


@pytest.mark.parametrize(
    ("replicas", "needed", "tolerance", "wanted", "reason"),
    [
        (5, 5.2, 0.1, 6, "one more is beyond the tolerance anyway"),
        (20, 20.7, 0.1, 23, "what is beyond it is rounded up, and stays"),
        (20, 20.7, 0.03, 21, "so many as are needed, where the HPA lets them come"),
        (50, 51.8, 0.1, 56, "the more replicas, the more"),
        (50, 51.8, 0.03, 52, "but for this"),
        (20, 20.5, 0.03, 20, "2.5% more: not worth a start"),
    ],
)
def test_too_many_come_rather_than_too_few_unless_the_hpa_takes_notice_earlier(
    replicas: int, needed: float, tolerance: float, wanted: int, reason: str
) -> None:
    hpa, limits = Hpa(1, 100, tolerance=tolerance), replace(LIMITS, most=100, tolerance=tolerance)
    for number in range(40):
        told = decision(Demand(1, 0, 0), limits=limits, ready=replicas, ahead=needed).load
        replicas = hpa.sync(15.0 * number, replicas, told)
    assert replicas == wanted, reason


@pytest.mark.parametrize(
    ("behavior", "tolerance"),
    [
        (None, 0.1),
        ({"scaleUp": {"tolerance": "0.03"}}, 0.03),
        ({"scaleUp": {"tolerance": "30m"}}, 0.03),
        ({"scaleUp": {"tolerance": 0}}, 0.0),
        ({"scaleUp": {"tolerance": 0.5}}, 0.1),
        ({"scaleUp": {"tolerance": "some"}}, 0.1),
        ({"scaleUp": {"tolerance": "NaN"}}, 0.1),
        ({"scaleUp": None}, 0.1),
        ({"scaleDown": {"tolerance": 0.05}}, 0.1),
    ],
)
def test_the_tolerance_is_of_the_behavior(behavior: dict[str, object] | None, tolerance: float) -> None:
    service = spec()
    assert service.autoscaling is not None
    scaling = service.autoscaling.model_copy(update={"behavior": behavior})
    made = bounds(service.model_copy(update={"autoscaling": scaling}))
    assert made is not None
    assert made.tolerance == tolerance


@pytest.mark.parametrize(
    ("tokens", "used", "reason"),
    [
        (100, 0.5, "a few sequences: half of the places at least"),
        (1200, 0.73, "36 sequences and twice 6 places"),
        (3400, 0.83, "more of them vary less"),
        (100000, 0.9, "thousands hardly vary, but no model is exact"),
    ],
)
def test_a_larger_service_needs_a_smaller_share_of_reserve(tokens: float, used: float, reason: str) -> None:
    assert utilization(curve(), 32, tokens) == pytest.approx(used, abs=0.01), reason


@pytest.mark.parametrize("tokens", [800, 1600, 3200, 6400])
def test_the_reserve_is_two_standard_deviations(tokens: float) -> None:
    rows = 32 * utilization(curve(), 32, tokens)
    sequences = tokens * float(np.interp(rows, range(1, 33), curve().itl))
    places = 32 * sequences / rows
    assert places == pytest.approx(sequences + 2 * sequences**0.5, rel=0.01)


def test_nothing_known_holds() -> None:
    made = decision(None, ready=3)
    assert (made.signal, made.load, made.desired_replicas) == ("Hold", None, None)
    assert made.message == "3 Ready replicas, none of which reports metrics: replicas stay"


AT_ZERO = [
    # why, bounds, replicas that there are, on their way, the load
    ("no pod, and none is wanted: nothing is asked for", replace(LIMITS, least=0), 0, 0, 0.0),
    ("idle at 0, else no fewer than 2", replace(LIMITS, least=2, idle=True), 0, 0, 0.0),
    ("a person scaled to 0 what should never be there", LIMITS, 0, 0, 1.0),
    ("one is on its way, and tells nothing yet", replace(LIMITS, least=0), 0, 1, None),
]


@pytest.mark.parametrize(
    ("limits", "ready", "pending", "load"), [row[1:] for row in AT_ZERO], ids=[r[0] for r in AT_ZERO]
)
def test_at_zero_replicas(limits: Bounds, ready: int, pending: int, load: float | None) -> None:
    made = decision(None, limits=limits, ready=ready, pending=pending)
    assert made.load == load
    assert (made.signal, made.desired_replicas) == (("Hold", None) if load is None else ("Demand", load))


@pytest.mark.parametrize(("tokens", "load"), [(0, 0.0), (1, 2.0), (3400, 3.55)], ids=["idle", "a little", "more"])
def test_idle_at_zero_else_no_fewer_than_the_minimum(tokens: float, load: float) -> None:
    made = decision(Demand(tokens, 0, 0), limits=replace(LIMITS, least=2, idle=True), ready=2)
    assert made.load == pytest.approx(load, abs=0.01)


def test_a_stricter_latency_takes_more_replicas() -> None:
    loads = [decision(limits=replace(LIMITS, itl=itl)).load or 0 for itl in (0.05, 0.028, 0.022)]
    assert loads == sorted(loads)
    assert loads[2] > 1.4 * loads[0]


@settings(max_examples=100)
@given(st.floats(1, 20000), st.floats(1, 2), st.floats(0.1, 0.9), st.integers(1, 12), st.integers(0, 4))
def test_more_demand_never_asks_for_fewer(tokens: float, more: float, alpha: float, ready: int, pending: int) -> None:
    loads = [
        decision(Demand(each, 20, 0), known=curve(round(alpha, 1)), ready=ready, pending=pending).load or 0
        for each in (tokens, tokens * more)
    ]
    assert loads[0] <= loads[1]


@settings(max_examples=100)
@given(st.floats(1, 20000), st.floats(0.1, 0.9), st.integers(0, 300), st.integers(1, 9), st.integers(0, 5))
def test_decisions_stay_within_bounds(tokens: float, alpha: float, waiting: int, ready: int, pending: int) -> None:
    made = decision(Demand(tokens, 20, waiting), known=curve(round(alpha, 1)), ready=ready, pending=pending)
    assert made.load is not None
    assert LIMITS.least <= made.load <= LIMITS.most
    assert made.desired_replicas in range(LIMITS.least, LIMITS.most + 1)


@settings(max_examples=60)
@given(st.floats(500, 5000), st.floats(0.15, 0.9))
def test_a_fall_of_acceptance_raises_replicas_at_the_same_demand(tokens: float, acceptance: float) -> None:
    fixed = range(4, 5)
    limits = replace(LIMITS, most=1000, itl=None)
    low, high = (
        decision(Demand(tokens, 20, 0), known=curve(p, fixed), limits=limits, ready=1).load or 0
        for p in (acceptance - 0.1, acceptance)
    )
    assert low > high or high == limits.least


def test_bounds_are_of_the_specification() -> None:
    assert bounds(spec(ttft="500ms", itl=None, queue=None, most=7, places=16)) == Bounds(1, 7, 0.5, None, None, 16)
    assert bounds(spec(scaling=False)) is None


@pytest.mark.parametrize(
    ("mode", "asked", "places", "reason"),
    [
        ("BLS", 16, 16, "as asked"),
        ("BLS", 128, 64, "the BLS lets no more run, whatever the engines hold"),
        ("LLMAPI", 128, 128, "the engine is the line"),
    ],
)
def test_places_are_what_a_replica_runs(mode: str, asked: int, places: int, reason: str) -> None:
    made = bounds(spec(mode=mode, places=asked))
    assert made is not None
    assert made.places == places, reason


@pytest.mark.parametrize(("keda", "idle"), [(None, False), ({}, False), ({"idleReplicaCount": 0}, True)])
def test_idle_is_asked_for_at_keda(keda: dict[str, object] | None, idle: bool) -> None:
    service = spec()
    assert service.autoscaling is not None
    asked = Keda.model_validate(keda) if keda is not None else None
    scaling = service.autoscaling.model_copy(update={"source": "KEDA", "keda": asked})
    made = bounds(service.model_copy(update={"autoscaling": scaling}))
    assert made is not None
    assert made.idle is idle
