"""The oracles bite: plans that pass fail where the operator has a defect."""

from dataclasses import replace

import pytest

from .conftest import Campaign
from .plans import Plan, plans

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUND = [
    ("no comparison finds what events missed", "update-drop-modified-sis"),
    ("what failed for now is not tried again", "scale-500-apply-deployments-server-1"),
    ("a status is written without the Lease", "update-leader-paused-at-apply-jobs-preflight"),
    ("a service that is being deleted is served", "foreground"),
]
BY_ID = {plan.id: plan for plan in plans()}
QUICK_SECONDS = 20.0
DEFECTIVE = [
    replace(BY_ID[name], id=f"{defect}: {name}", defect=defect, deadline=QUICK_SECONDS) for defect, name in FOUND
]


@pytest.mark.parametrize("plan", DEFECTIVE, ids=[defect.replace(" ", "-") for defect, _ in FOUND])
async def test_a_defect_is_found(campaign: Campaign, plan: Plan) -> None:
    with pytest.raises(AssertionError):
        await campaign.outcome(plan)
