"""Many interleavings, the same in each run; `make simulate` draws new ones."""

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from bench.scale.__main__ import SERVICE
from support.simulation.interleavings import Interleavings
from support.simulation.mutants import MUTANTS, mutated
from support.simulation.world import World
from tandem.api.wire import Object
from tandem.process.operator import COLLECTED

ASKED = os.environ.get("SIMULATED_INTERLEAVINGS")
"""How many to draw anew."""
BUDGET = settings(
    max_examples=int(ASKED or 60),
    stateful_step_count=6,
    deadline=None,
    derandomize=not ASKED,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log; and garbage is collected as in the operator itself."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*COLLECTED)
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("half", ["Left", "Right"])
def test_all_come_to_the_same_end(half: str) -> None:
    """In two halves, for two cores: what is drawn follows from the class."""
    run_state_machine_as_test(type(half, (Interleavings,), {}), settings=BUDGET)


QUICK = (
    "what is applied names no UID",
    "a status names no UID",
    "objects of others are taken",
)
"""Those that are found within a second; `make simulate` tries all."""


@pytest.mark.parametrize("name", MUTANTS if ASKED else QUICK)
def test_the_simulation_finds(name: str) -> None:
    fixed = settings(BUDGET, max_examples=5000, phases=[Phase.generate], report_multiple_bugs=False, derandomize=True)
    with mutated(MUTANTS[name]), pytest.raises(AssertionError):
        run_state_machine_as_test(Interleavings, settings=fixed)


@pytest.mark.parametrize("skew", [0.0, 120.0, -120.0])
def test_a_clock_that_is_wrong_gives_no_rollout_up(skew: float) -> None:
    """The operator's is minutes off the API server's, which is longer than the deadline."""
    spec = {**SERVICE["spec"], "rollout": {"strategy": "Replace", "progressDeadlineSeconds": 60}}
    world = World(seed=1, skew=skew)
    seen = set[str]()
    world.cluster.on_write.append(lambda write: seen.update(_reasons(write.object)))
    try:
        world.create(spec)
        world.settled()
        world.edit({**spec, "speculation": {"decodingType": "DraftTarget", "maxDraftLen": 6}})
        world.settled()
        assert seen.isdisjoint({"RolledBack", "ProgressDeadlineExceeded"})
        assert world.service and _reasons(world.service) >= {"ServersAnswer"}
    finally:
        world.close()


def _reasons(obj: Object) -> set[str]:
    return {each["reason"] for each in obj.get("status", {}).get("conditions", []) if "reason" in each}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_defect_can_be_put_in(name: str) -> None:
    """`make simulate` looks for them."""
    with mutated(MUTANTS[name]):
        pass
