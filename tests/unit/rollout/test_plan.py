"""How a service comes up, step by step: what the plan asks for after each thing that happens.

`World` stands in for the API server: it keeps what was applied. Everything else is the operator's own code.
"""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import BAD, GOOD, World, bring_up, findings
from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.rollout.decide import decide
from tandem.rollout.plan import Apply, plan
from tandem.rollout.tasks import Stage
from tandem.settings import Settings


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def test_from_nothing_to_ready(world: World, service: SpeculativeInferenceService) -> None:
    decision, done = world.step(service)
    assert done == ["+ServiceAccount", "+ConfigMap", "+Service", "+Job"], "no server before its models are checked"
    assert findings(world, service, decision)["Ready"] == "False/PreflightRunning"

    assert world.step(service)[1] == [], "while the Job runs there is nothing to do"

    world.finish_preflight(GOOD)
    decision, done = world.step(service)
    assert done == ["+ConfigMap", "+PodDisruptionBudget", "+Deployment", "-Job"], (
        "the verdict is kept, and the Job has served"
    )
    assert findings(world, service, decision)["Ready"] == "False/RollingOut"

    world.run_servers(1, ready=False)
    assert findings(world, service, world.step(service)[0])["Ready"] == "False/RollingOut"

    world.run_servers(1)
    decision, done = world.step(service)
    assert done == []
    assert findings(world, service, decision) == {
        "Ready": "True/ServersAnswer",
        "SpecAccepted": "True/Accepted",
        "ModelsReady": "True/FilesFound",
        "PairCompatible": "True/TokenizersEqual",
        "Available": "True/ServersAnswer",
    }


def test_words_about_a_profile_change_no_revision_that_is_there(
    world: World, service: SpeculativeInferenceService, settings: Settings
) -> None:
    """A new operator may say more of a profile. The revision's name is the same then, and its ConfigMap immutable."""
    world.step(service)
    world.finish_preflight(BAD)
    world.step(service)
    told = [p.model_copy(update={"description": "new", "triton_version": "26.09"}) for p in settings.profiles]
    world.settings = settings.model_copy(update={"profiles": told})
    assert world.step(service)[1] == []


def test_a_new_revision_waits_for_its_preflight_while_the_old_one_serves(
    world: World, service: SpeculativeInferenceService
) -> None:
    first = bring_up(world, service)
    edited = parse(QUICKSTART, target__model__uri="file:///other")
    decision, done = world.step(edited)
    assert done == ["+ConfigMap", "+Job"]
    assert decision.revision is not None
    assert first.revision is not None
    assert decision.revision.digest != first.revision.digest
    assert world.observed().live_revision == first.revision.digest
    assert findings(world, edited, decision)["Available"] == "True/ServersAnswer"
    assert findings(world, edited, decision)["Ready"] == "False/PreflightRunning"


def test_a_bad_pair_stalls_and_going_back_heals_without_touching_pods(
    world: World, service: SpeculativeInferenceService
) -> None:
    first = bring_up(world, service)
    bad = parse(QUICKSTART, draft__model__uri="file:///other")
    world.step(bad)
    pods = list(world.pods)
    world.finish_preflight(BAD)
    decision, done = world.step(bad)
    assert done == ["+ConfigMap", "-Job"], "the verdict is kept; the Deployment is not touched"
    found = findings(world, bad, decision)
    assert found["Stalled"] == "True/TokenizersDiffer"
    assert found["Available"] == "True/ServersAnswer"
    world.pods = pods
    decision, done = world.step(service)
    assert done == [], "the old revision, its verdict and its pods are all still there"
    assert decision.revision == first.revision
    assert findings(world, service, decision)["Ready"] == "True/ServersAnswer"


def test_the_verdict_of_what_serves_is_kept_however_many_edits_are_bad(
    world: World, service: SpeculativeInferenceService
) -> None:
    bring_up(world, service)
    pods = list(world.pods)
    for number in range(2 * world.settings.revision_history_limit):
        bad = parse(QUICKSTART, draft__model__uri=f"file:///other/{number}")
        world.step(bad)
        world.finish_preflight(BAD)
        world.step(bad)
        world.pods = list(pods)
    observed = world.observed()
    verdicts = [result for result in observed.results if result.component == names.PREFLIGHT]
    assert len(verdicts) == 2 + world.settings.revision_history_limit, "the last one's, what serves, and the history"
    decision, done = world.step(service)
    assert "+Job" not in done
    assert findings(world, service, decision)["Ready"] == "True/ServersAnswer"


def test_scaling_works_while_a_new_revision_is_held_back(world: World, service: SpeculativeInferenceService) -> None:
    bring_up(world, service)
    for edit in ({"draft__model__uri": "file:///other"}, {"runtime__profile": "nope"}):
        edited = parse(QUICKSTART, replicas=4, **edit)
        _, done = world.step(edited)
        assert "~Deployment" in done
        assert world.objects["Deployment", "quickstart-server"]["spec"]["replicas"] == 4
        world.objects["Deployment", "quickstart-server"]["spec"]["replicas"] = 1


def test_a_refused_spec_touches_nothing(world: World, service: SpeculativeInferenceService) -> None:
    bring_up(world, service)
    refused = parse(QUICKSTART, runtime__profile="nope")
    decision, done = world.step(refused)
    assert done == []
    found = findings(world, refused, decision)
    assert found["SpecAccepted"] == found["Stalled"].replace("True", "False") == "False/UnknownProfile"
    assert found["Available"] == "True/ServersAnswer"


def test_what_was_begun_goes_on_while_a_spec_is_refused(world: World, service: SpeculativeInferenceService) -> None:
    bring_up(world, service)
    world.step(parse(QUICKSTART, target__model__uri="file:///other"))
    assert len(world.jobs()) == 1
    assert world.step(parse(QUICKSTART, runtime__profile="nope"))[1] == []


def test_a_job_is_never_written_again(world: World, service: SpeculativeInferenceService) -> None:
    """The API server adds what the manifest leaves open, and refuses another template."""
    world.step(service)
    (name,) = world.jobs()
    world.objects["Job", name]["spec"]["suspend"] = False
    assert world.step(service)[1] == []


@pytest.mark.parametrize(
    ("cache", "rolls"),
    [
        ({"size": "1Ti"}, False),
        ({"accessModes": ["ReadWriteOnce"]}, False),
        ({"storageClassName": "fast"}, False),
        ({"claimName": "mine"}, True),
    ],
)
def test_what_only_a_new_claim_would_have_rolls_no_server(
    world: World, service: SpeculativeInferenceService, cache: dict[str, Any], rolls: bool
) -> None:
    first = bring_up(world, service)
    decision, done = world.step(parse(QUICKSTART, storage={"cache": cache}))
    assert bool(done) is rolls
    assert decision.revision is not None
    assert first.revision is not None
    assert (decision.revision.digest != first.revision.digest) is rolls


def test_a_refused_new_service_makes_nothing(world: World) -> None:
    assert world.step(parse(QUICKSTART, runtime__profile="nope"))[1] == []


def test_a_lost_verdict_is_asked_for_again(world: World, service: SpeculativeInferenceService) -> None:
    world.step(service)
    world.finish_preflight(None)
    assert world.step(service)[1] == ["-Job"]
    assert world.step(service)[1] == ["+Job"]


@pytest.mark.parametrize(
    "message",
    ["Killed", "{}", GOOD.replace('"True"', '"Perhaps"'), GOOD.replace("FilesFound", ""), "[" * 4096],
    ids=["no JSON", "no checks", "no such status", "no reason", "nested without end"],
)
def test_a_verdict_that_is_no_verdict_stalls_and_is_not_repeated(
    world: World, service: SpeculativeInferenceService, message: str
) -> None:
    world.step(service)
    world.finish_preflight(message)
    decision, done = world.step(service)
    assert done == []
    assert [step.state.stage for step in decision.steps] == [Stage.BROKEN]
    assert findings(world, service, decision)["Stalled"] == "True/PreflightFailed"


def test_a_deleted_child_comes_back(world: World, service: SpeculativeInferenceService) -> None:
    bring_up(world, service)
    for kind, name in list(world.objects):
        del world.objects[kind, name]
        _, done = world.step(service)
        if (kind, name) in world.objects:
            assert done[0] == f"+{kind}"
        else:
            assert done == ["+Job"], "a lost verdict is asked for again"
            world.finish_preflight(GOOD)
            world.step(service)


def test_a_new_operator_with_another_serving_image_rolls_nothing(
    world: World, service: SpeculativeInferenceService
) -> None:
    bring_up(world, service)
    world.settings = world.settings.model_copy(update={"serving_image": "tandem/serving:9"})
    assert world.step(service)[1] == []
    decision, done = world.step(parse(QUICKSTART, speculation__maxDraftLen=2))
    assert done == ["+ConfigMap", "+Job"], "an edit moves on to today's image, whose preflight is a new one"
    assert decision.revision is not None
    assert decision.revision.pod["initContainers"][0]["image"] == "tandem/serving:9"


def test_a_revision_that_never_passed_gives_way_to_todays_images(
    world: World, service: SpeculativeInferenceService
) -> None:
    world.step(service)
    world.settings = world.settings.model_copy(update={"serving_image": "tandem/serving:9"})
    decision, done = world.step(service)
    assert done == ["+ConfigMap", "+Job", "-Job"], "the Job of the old images is of no use any more"
    assert decision.revision is not None
    assert decision.revision.pod["initContainers"][0]["image"] == "tandem/serving:9"


def test_old_revisions_are_kept_for_going_back_and_then_deleted(
    world: World, service: SpeculativeInferenceService
) -> None:
    bring_up(world, service)
    for length in (5, 6, 7, 8, 9):
        edited = parse(QUICKSTART, speculation__maxDraftLen=length)
        world.step(edited)
        world.finish_preflight(GOOD)
        world.step(edited)
        world.run_servers(1)
        world.step(edited)
    observed = world.observed()
    assert len(observed.revisions) == 1 + world.settings.revision_history_limit


def test_every_child_is_owned_and_labelled(world: World, service: SpeculativeInferenceService) -> None:
    bring_up(world, service)
    for obj in world.objects.values():
        (owner,) = obj["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-1", True)
        assert obj["metadata"]["labels"][names.LABEL_SERVICE] == "quickstart"
        assert len(obj["metadata"]["name"]) <= 63


def test_actions_are_values(world: World, service: SpeculativeInferenceService) -> None:
    """Planning twice gives equal plans, and changes neither the observation nor the service."""
    observed = world.observed()
    decision = decide(service, world.settings, observed)
    first = plan(service, decision, observed, world.settings)
    assert first == plan(service, decision, observed, world.settings)
    assert all(isinstance(action, Apply) for action in first)
