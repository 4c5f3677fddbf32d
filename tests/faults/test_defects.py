"""The oracles bite: plans that pass fail where the operator has a defect."""

from dataclasses import replace

import pytest

from .conftest import Campaign
from .plans import plans

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUND = [
    ("what failed for now is not tried again", "scale-500-apply-deployments-server-1"),
    ("it is applied without the Lease", "update-leader-paused-at-apply-configmaps-revision"),
    ("a status is written without the Lease", "update-leader-paused-at-apply-deployments-server"),
    ("no comparison finds what events missed", "scale-drop-modified-sis"),
    ("children of another owner are ours", "recreate-while-down-unsettled"),
    ("a Job's verdict is thrown away before it is recorded", "create-kill-before-apply-configmaps-preflight-1"),
    ("revisions that pods mount are pruned", "update-kill-after-apply-deployments-server-1"),
    ("a service that is being deleted is served", "foreground"),
]
BY_ID = {plan.id: plan for plan in plans()}
QUICK_SECONDS = 20.0


@pytest.mark.parametrize(("defect", "name"), FOUND, ids=[defect.replace(" ", "-") for defect, _ in FOUND])
async def test_a_defect_is_found(campaign: Campaign, defect: str, name: str) -> None:
    plan = replace(BY_ID[name], id=f"{name}, but {defect}", defect=defect, deadline=QUICK_SECONDS)
    campaign.begin([plan])
    with pytest.raises(AssertionError) as found:
        await campaign.outcome(plan)
    print(str(found.value)[:300])
