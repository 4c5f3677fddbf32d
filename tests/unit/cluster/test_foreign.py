"""What somebody else made under a name of ours is never changed, and nothing is started that would use it."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import GOOD, HUB, World, fetched
from tandem import names
from tandem.cluster.apply import execute
from tandem.cluster.kinds import Kind
from tandem.errors import NameTaken
from tandem.rollout.plan import Apply
from tandem.settings import Settings

SERVICE = parse(
    QUICKSTART,
    **HUB,
    serving={"access": {"from": [{"podSelector": {}}]}},
    autoscaling={"minReplicas": 1, "maxReplicas": 2, "objectives": {"queueLength": 4}},
)
OWNER = [{"kind": "SpeculativeInferenceService", "name": "other", "uid": "uid-2", "controller": True}]
OURS = {names.LABEL_SERVICE: "quickstart", names.LABEL_MANAGED_BY: names.FIELD_MANAGER}
FOREIGN: dict[str, dict[str, Any]] = {
    "nobody's": {},
    "another service's": {"ownerReferences": OWNER},
    "another service's, labelled as ours": {"ownerReferences": OWNER, "labels": OURS},
    "nobody's, labelled as ours": {"labels": OURS},
}


def children(settings: Settings) -> list[dict[str, Any]]:
    """All that is applied from nothing to servers, in order."""
    world, applied = World(settings), list[dict[str, Any]]()
    for message in (fetched(), GOOD, None):
        decision, _ = world.step(SERVICE)
        desired = decision.desired
        applied += [*desired.in_order, *([desired.autoscaler] if desired.autoscaler else [])]
        for name in world.jobs() if message else ():
            world.finish(name, message)
        if message == fetched():
            applied += world.step(SERVICE)[0].desired.in_order
            world.pods = []
    return [child for child in applied if "ownerReferences" in child["metadata"]]


class Taken:
    """An API server on which everything is there already, made by somebody else."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return {"kind": kind.kind, "metadata": {"name": name, "namespace": namespace, "uid": "u", **self.metadata}}


@pytest.mark.parametrize("metadata", FOREIGN.values(), ids=FOREIGN)
async def test_every_child_is_looked_at_before_it_is_touched(settings: Settings, metadata: dict[str, Any]) -> None:
    seen = set()
    for child in children(settings):
        kind, name = child["kind"], child["metadata"]["name"]
        (refused,) = await execute(Taken(metadata), [Apply(child, None)], lambda: None)  # type: ignore[arg-type]
        assert isinstance(refused, NameTaken) and f"{kind} '{name}' exists and belongs to" in str(refused)
        seen.add(kind)
    assert seen == {
        *("ServiceAccount", "NetworkPolicy", "ConfigMap", "Service", "Job"),
        *("PodDisruptionBudget", "Deployment", "HorizontalPodAutoscaler"),
    }


def test_what_pods_use_is_made_before_them(settings: Settings) -> None:
    """So that a name that is taken, which keeps back what comes after it, keeps the pods from being made."""
    order = [(child["kind"], child["metadata"]["name"]) for child in children(settings)]
    for child in children(settings):
        if child["kind"] not in ("Job", "Deployment"):
            continue
        pod = child["spec"]["template"]["spec"]
        used = [("ConfigMap", volume["configMap"]["name"]) for volume in pod["volumes"] if "configMap" in volume]
        for each in (*used, ("ServiceAccount", pod["serviceAccountName"])):
            assert order.index(each) < order.index((child["kind"], child["metadata"]["name"]))
