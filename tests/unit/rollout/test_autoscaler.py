"""The autoscaler of a service: when which is there."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import GOOD, World, applied, observed_of
from tandem import children
from tandem.accept import Refusal
from tandem.api.conditions import SpecReason
from tandem.api.wire import Object
from tandem.children.desired import Desired
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.rollout.plan import Apply, Delete, autoscaling
from tandem.settings import ReportsSettings, Settings

EMBEDDED = {"maxReplicas": 8}
KEDA = {"maxReplicas": 8, "source": "KEDA"}
WITH_SERVER = Settings(reports=ReportsSettings(url="https://tandem-metrics.tandem-system.svc"))


def live(service_autoscaling: dict[str, Any]) -> Object:
    made = children.autoscaler(parse(QUICKSTART, autoscaling=service_autoscaling), WITH_SERVER)
    assert made is not None
    return applied(made)


STEPS: list[tuple[str, dict[str, Any] | None, list[Object], list[str]]] = [
    ("nobody asks for one", None, [], []),
    ("switched on", EMBEDDED, [], ["+HorizontalPodAutoscaler"]),
    ("as it should be", EMBEDDED, [live(EMBEDDED)], []),
    ("other bounds", {"maxReplicas": 9}, [live(EMBEDDED)], ["~HorizontalPodAutoscaler"]),
    ("switched off", None, [live(EMBEDDED)], ["-HorizontalPodAutoscaler"]),
    (
        "one writer of /scale at a time: the old one goes first",
        KEDA,
        [live(EMBEDDED)],
        ["-HorizontalPodAutoscaler", "+ScaledObject"],
    ),
    ("and back", EMBEDDED, [live(KEDA)], ["-ScaledObject", "+HorizontalPodAutoscaler"]),
]


@pytest.mark.parametrize(("reason", "asked", "there", "wanted"), STEPS, ids=[row[0] for row in STEPS])
def test_one_autoscaler(reason: str, asked: dict[str, Any] | None, there: list[Object], wanted: list[str]) -> None:
    service = parse(QUICKSTART, autoscaling=asked)
    decision = Decision(desired=Desired(autoscaler=children.autoscaler(service, WITH_SERVER)))
    actions = autoscaling(decision, observed_of(*there))
    assert [World.describe(action) for action in actions] == wanted, reason
    assert all(isinstance(action, Apply | Delete) for action in actions)


def test_it_comes_with_the_servers_and_stays_while_a_spec_is_refused(settings: Settings) -> None:
    world, service = World(settings), parse(QUICKSTART, autoscaling=EMBEDDED, replicas=8)
    assert world.step(service)[0].desired.autoscaler is None, "there is nothing to scale yet"
    world.finish_preflight(GOOD)
    decision, _ = world.step(service)
    assert decision.desired.autoscaler is not None
    assert world.objects["Deployment", "quickstart-server"]["spec"]["replicas"] == 8, "not the autoscaler's minimum"
    refused = decide(parse(QUICKSTART, autoscaling=EMBEDDED, runtime__profile="nope"), settings, world.observed())
    assert refused.refusal
    assert refused.desired.autoscaler == decision.desired.autoscaler


@pytest.mark.parametrize("there", [[], [live(EMBEDDED)], [live(KEDA)]], ids=["none", "this one", "another"])
def test_of_a_spec_that_is_refused_no_autoscaler_is_made_changed_or_removed(there: list[Object]) -> None:
    wanted = children.autoscaler(parse(QUICKSTART, autoscaling={"maxReplicas": 9}), WITH_SERVER)
    refusal = Refusal(SpecReason.CACHE_NOT_SHAREABLE, "write maxReplicas: 1")
    decision = Decision(refusal=refusal, desired=Desired(autoscaler=wanted))
    assert autoscaling(decision, observed_of(*there)) == []


ONE_NODE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: big, namespace: default, uid: uid-1, generation: 1}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: hf://org/model}}
  speculation: {decodingType: None}
  storage: {cache: {accessModes: [ReadWriteOnce]}}
"""


@pytest.mark.parametrize(
    ("asked", "refused"),
    [(None, False), ({"maxReplicas": 1}, False), ({"maxReplicas": 2}, True)],
    ids=["one replica", "never more than one", "a second could not mount the volume"],
)
def test_a_volume_of_one_node_bounds_the_replicas(settings: Settings, asked: Any, refused: bool) -> None:
    decision = decide(parse(ONE_NODE, autoscaling=asked), settings, Observed())
    assert (decision.refusal is not None and decision.refusal.reason == "CacheNotShareable") is refused
