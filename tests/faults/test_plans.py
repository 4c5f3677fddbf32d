"""Each plan ends as a run without its fault does, and nothing is done on the way that must not be."""

import os

import pytest
import yaml

from .conftest import Campaign
from .plans import RECORDED, Plan, is_write, plans, recorded
from .scenarios import SCENARIOS

OFTEN = ("create", "update", "scale")
"""Scenarios of most of the plans."""
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[pytest.mark.quick] * (name in OFTEN)) for name in SCENARIOS]
)
async def test_the_recording_is_what_a_run_without_a_fault_does(campaign: Campaign, scenario: str) -> None:
    """The plans follow from it: `UPDATE_GOLDENS=1` writes it anew."""
    found = await campaign.reference(scenario)
    if os.environ.get("UPDATE_GOLDENS"):
        both = {"requests": found.requests, "events": found.events}
        seen = {what: dict(sorted(counted.items())) for what, counted in both.items()}
        _write({**recorded(), scenario: seen})
        recorded.cache_clear()
    known, seen_now = recorded()[scenario]["requests"], found.requests
    writes, expected = ({r for r in requests if is_write(r)} for requests in (seen_now, known))
    assert writes <= expected
    assert scenario == "back" or writes == expected, "whether what was there for a moment is seen is chance"


def _write(content: dict[str, dict[str, dict[str, int]]]) -> None:
    RECORDED.write_text(
        yaml.safe_dump({name: content[name] for name in SCENARIOS if name in content}, sort_keys=False)
    )


@pytest.mark.parametrize(
    "plan", [pytest.param(plan, id=plan.id, marks=[pytest.mark.quick] * plan.quick) for plan in plans()]
)
async def test_plan(campaign: Campaign, plan: Plan) -> None:
    await campaign.outcome(plan)
