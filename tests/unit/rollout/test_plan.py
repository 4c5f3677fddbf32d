"""How a service comes up, step by step: what the plan asks for after each thing that happens.

`World` stands in for the API server: it keeps what was applied. Everything else is the operator's own code.
"""

import copy
import json
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.rollout.plan import Action, Apply, CreateKeys, Delete, plan
from tandem.rollout.tasks import Stage
from tandem.settings import Settings

GOOD = json.dumps(
    {
        "checks": [
            {"type": "ModelsReady", "status": "True", "reason": "FilesFound", "message": "both are there"},
            {"type": "PairCompatible", "status": "True", "reason": "TokenizersEqual", "message": "equal"},
        ]
    }
)
BAD = GOOD.replace(
    '"True", "reason": "TokenizersEqual", "message": "equal"',
    '"False", "reason": "TokenizersDiffer", "message": "token 7 is a here and b there: take a draft that shares it"',
)


class World:
    """Kubernetes, reduced to a dictionary: applied objects stay as they were applied."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        self.clock = 0

    def observed(self) -> Observed:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for obj in self.objects.values():
            kinds.setdefault(obj["kind"], []).append(obj)
        return Observed(
            service={},
            configmaps=kinds.get("ConfigMap", []),
            jobs=kinds.get("Job", []),
            deployments=kinds.get("Deployment", []),
            services=kinds.get("Service", []),
            service_accounts=kinds.get("ServiceAccount", []),
            disruption_budgets=kinds.get("PodDisruptionBudget", []),
            network_policies=kinds.get("NetworkPolicy", []),
            leader_worker_sets=kinds.get("LeaderWorkerSet", []),
            pods=self.pods,
            cache=self.objects.get(("PersistentVolumeClaim", names.CACHE_CLAIM)),
        )

    def step(self, service: SpeculativeInferenceService) -> tuple[Decision, list[str]]:
        """Decide, plan and execute once; what was done as `+Kind`, `~Kind` and `-Kind`."""
        decision = decide(service, self.settings, self.observed())
        actions = plan(decision, self.observed(), self.settings, self.matches)
        for action in actions:
            self.execute(action)
        return decision, [self.describe(action) for action in actions]

    def matches(self, manifest: dict[str, Any], live: dict[str, Any]) -> bool:
        return manifest.get("spec") == live.get("spec") and manifest.get("data") == live.get("data")

    def execute(self, action: Action) -> None:
        if isinstance(action, Delete):
            del self.objects[action.live["kind"], action.live["metadata"]["name"]]
            return
        if isinstance(action, CreateKeys):
            self.secrets.setdefault(action.manifest["metadata"]["name"], action.manifest)
            return
        self.clock += 1
        obj = copy.deepcopy(action.manifest)
        obj["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{self.clock:02}Z", "generation": 1}
        obj["metadata"]["uid"] = f"uid-{self.clock}"
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj

    @staticmethod
    def describe(action: Action) -> str:
        if isinstance(action, Delete):
            return f"-{action.live['kind']}"
        if isinstance(action, CreateKeys):
            return "+Secret?"
        return ("~" if action.live else "+") + str(action.manifest["kind"])

    def finish_preflight(self, message: str | None) -> None:
        """The only Job ends; `message` is its termination message, None when the pod is gone."""
        (name,) = self.jobs()
        self.finish(name, message)

    def jobs(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "Job"]

    def finish(self, name: str, message: str | None) -> None:
        job = self.objects["Job", name]
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        if message is not None:
            self.pods.append(job_pod(job, message))

    def run_servers(self, count: int, ready: bool = True) -> None:
        """The Deployment controller makes `count` pods of the Deployment as it is now, and removes all others."""
        ((_, deployment),) = [item for item in self.objects.items() if item[0][0] == "Deployment"]
        deployment["status"] = {"observedGeneration": 1}
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.pods = [server_pod(f"server-{n}", labels, ready) for n in range(count)]


def job_pod(job: dict[str, Any], message: str, phase: str = "Succeeded") -> dict[str, Any]:
    """A pod of `job` that ended."""
    labels = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"], names.LABEL_COMPONENT: names.PREFLIGHT}
    ended = {"exitCode": int(phase == "Failed"), "message": message}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job['metadata']['name']}-x", "labels": labels},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}],
        },
    }


def server_pod(name: str, labels: dict[str, str], ready: bool) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": "Running", "conditions": conditions},
    }


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def findings(world: World, service: SpeculativeInferenceService, decision: Decision) -> dict[str, str]:
    """Condition type to `Status/Reason`."""
    found = status(Situation(service, decision, world.observed(), "2026-01-01T00:00:00Z"))
    return {c["type"]: f"{c['status']}/{c['reason']}" for c in found["conditions"]}


def bring_up(world: World, service: SpeculativeInferenceService) -> Decision:
    world.step(service)
    world.finish_preflight(GOOD)
    world.step(service)
    world.run_servers(service.spec.replicas)
    return world.step(service)[0]


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
        "SpecAccepted": "True/AcceptedWithWarnings",
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
    assert world.observed().live_revision() == first.revision.digest
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
    verdicts = observed.component(observed.configmaps, names.result(names.PREFLIGHT))
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
    assert [step.outcome.stage for step in decision.steps] == [Stage.BROKEN]
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
    revisions = observed.component(observed.configmaps, names.REVISION)
    assert len(revisions) == 1 + world.settings.revision_history_limit


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
    first = plan(decision, observed, world.settings, world.matches)
    assert first == plan(decision, observed, world.settings, world.matches)
    assert all(isinstance(action, Apply) for action in first)
