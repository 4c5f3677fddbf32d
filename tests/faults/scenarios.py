"""What a user does while a fault strikes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from .observer import Scene
from .oracles import gone, ready, stalled

if TYPE_CHECKING:
    from .world import World

SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: svc}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4}
"""
SETTLED_SECONDS = 2.0
Step = Callable[["World"], Awaitable[None]]


def service(**spec: Any) -> dict[str, Any]:
    """The service, with fields of its spec in the place of others."""
    raw: dict[str, Any] = yaml.safe_load(SERVICE)
    raw["spec"] |= spec
    return raw


def apply(**spec: Any) -> Step:
    """Apply the service."""
    return lambda world: world.apply(service(**spec))


SECOND: Mapping[str, Any] = {"speculation": {"decodingType": "DraftTarget", "maxDraftLen": 2}}
"""Another revision."""
BAD: Mapping[str, Any] = {"runtime": {"mode": "BLS", "profile": "nope"}}
REPLACE: Mapping[str, Any] = {"rollout": {"strategy": "Replace"}}
GUARDED: Mapping[str, Any] = {
    "replicas": 2,  # what a changed minReplicas asks for: the autoscaler, which has no figures, would take none away
    "serving": {"access": {"from": [{"podSelector": {"matchLabels": {"client": "yes"}}}]}},
    "autoscaling": {"maxReplicas": 3, "objectives": {"queueLength": 4}},
}
"""With all kinds of children."""


def scale(replicas: int) -> Step:
    """As `kubectl scale`, or an autoscaler."""

    async def step(world: "World") -> None:
        await world.merge("sis", "svc", {"spec": {"replicas": replicas}}, "scale")

    return step


async def delete(world: "World") -> None:
    """As `kubectl delete`, but does not wait."""
    await world.delete("sis", "svc")


async def delete_children_first(world: "World") -> None:
    """As `kubectl delete --cascade=foreground`: the service is there until its children are gone."""
    await world.delete("sis", "svc", propagation="Foreground")


async def recreate(world: "World") -> None:
    """Delete, and create under the same name as soon as that is free: children of the old one may still be there."""
    await world.delete("sis", "svc")
    await world.until("the name to be free", lambda: world.scene.service is None)
    await world.apply(service())


async def orphan(world: "World") -> None:
    """The same, and leave the children: they are let go, and taken up."""
    await world.delete("sis", "svc", propagation="Orphan")
    await world.until("the name to be free", lambda: world.scene.service is None)
    await world.apply(service())


async def restart(world: "World") -> None:
    """A new process of the operator."""
    world.operator.kill()


async def autoscaled(world: "World") -> None:
    """Wait until the autoscaler has looked for its figures, of which there are none."""
    await world.until(
        "the autoscaler to look",
        lambda: any(
            each["type"] == "ScalingActive"
            for hpa in world.scene.of("HorizontalPodAutoscaler")
            for each in hpa.get("status", {}).get("conditions") or ()
        ),
    )
    await world.settled(SETTLED_SECONDS)


async def nothing(world: "World") -> None:
    """All stays as it is."""


@dataclass(frozen=True)
class Scenario:
    """What comes before the fault, each step settled before the next; and what comes with it."""

    before: tuple[Step, ...]
    act: tuple[Step, ...]
    done: Callable[[Scene], bool] = ready
    """Whether it may be over; it is when nothing changes any more."""


SCENARIOS: Mapping[str, Scenario] = {
    "create": Scenario((), (apply(),)),
    "update": Scenario((apply(),), (apply(**SECOND),)),
    "replace": Scenario((apply(**REPLACE),), (apply(**SECOND, **REPLACE),)),
    "scale": Scenario((apply(),), (scale(3),)),
    "shrink": Scenario((apply(replicas=3),), (scale(1),)),
    "delete": Scenario((apply(),), (delete,), gone),
    "foreground": Scenario((apply(),), (delete_children_first,), gone),
    "recreate": Scenario((apply(),), (recreate,)),
    "orphan": Scenario((apply(),), (orphan,)),
    "rollback": Scenario((apply(), apply(**SECOND)), (apply(),)),
    "bad": Scenario((apply(),), (apply(**BAD),), stalled),
    "back": Scenario((apply(),), (apply(**SECOND), apply())),
    "still": Scenario((apply(),), (nothing,)),
    "restart": Scenario((apply(),), (restart,)),
    "guarded": Scenario((), (apply(**GUARDED),)),
    "guarded-still": Scenario((apply(**GUARDED), autoscaled), (nothing,)),
}
