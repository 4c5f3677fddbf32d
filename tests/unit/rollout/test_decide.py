"""What should exist of a service, by what was observed; `test_plan` tells the stories."""

from dataclasses import replace
from typing import Any

import pytest

from support.groups import GROUPS
from support.services import QUICKSTART, parse
from support.world import GOOD, World, bring_up
from tandem import names
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.children.desired import Desired
from tandem.children.metadata import identity
from tandem.render import PodDefaults, Record
from tandem.rollout.decide import decide
from tandem.rollout.observed import CacheClaim, Live, Observed, Workload
from tandem.rollout.tasks import Stage
from tandem.settings import PullSecret, Settings

EMBEDDED = {"autoscaling": {"maxReplicas": 2}}
CACHED = {"target__model__uri": "hf://org/target"}
PEERS: dict[str, object] = {"serving": {"access": {"from": [{"podSelector": {}}]}}}


def fields(desired: Desired) -> set[str]:
    """Names of the fields that hold something."""
    return {name for name in Desired.__dataclass_fields__ if getattr(desired, name)}


FIRST = {"service_account", "revision", "endpoint", "jobs"}
NEW = [
    ("models that are mounted", {}, FIRST),
    ("a model to download: no revision before its folder is known", CACHED, FIRST - {"revision"} | {"cache_claim"}),
    ("named clients", PEERS, {*FIRST, "network_policy"}),
    ("no autoscaler before there is something to scale", EMBEDDED, FIRST),
    ("a spec that is refused", {"runtime__profile": "nope"}, set[str]()),
]


@pytest.mark.parametrize(("reason", "changes", "wanted"), NEW, ids=[row[0] for row in NEW])
def test_of_a_new_service(reason: str, changes: dict[str, object], wanted: set[str], settings: Settings) -> None:
    decision = decide(parse(QUICKSTART, **changes), settings, Observed())
    assert fields(decision.desired) == wanted, reason
    assert not decision.passed


@pytest.mark.parametrize(("mode", "profile"), [("BLS", "reference"), ("LLMAPI", "trtllm-26.07")])
def test_what_a_new_revision_is_rendered_with(mode: str, profile: str, settings: Settings) -> None:
    """All that an administrator gives, and what this operator's images can do."""
    resources = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    jobs = settings.jobs.model_copy(update={"resources": resources, "image_pull_secrets": [PullSecret(name="hub")]})
    given = settings.model_copy(update={"jobs": jobs, "user_ids": "Platform", "serving_image": "serving:2"})
    revision = decide(parse(QUICKSTART, runtime={"mode": mode, "profile": profile}), given, Observed()).revision
    assert revision
    record = Record.model_validate_json(revision.files["record.json"])
    assert record.pods == PodDefaults(user_ids="Platform", init_resources=resources, image_pull_secrets=("hub",))
    assert (record.renderer, record.serving_image) == ("v1", "serving:2")
    assert record.profile == settings.profile(profile)


def test_of_a_service_whose_tasks_have_passed(service: SpeculativeInferenceService, settings: Settings) -> None:
    world = World(settings)
    first = bring_up(world, service)
    assert first.passed
    assert first.revision and first.serves == first.revision.digest
    wanted = {"service_account", "revision", "endpoint", "results", "disruption_budget", "workload"}
    assert fields(first.desired) == wanted
    scaled = decide(parse(QUICKSTART, **EMBEDDED), settings, world.observed())
    assert fields(scaled.desired) == {*wanted, "autoscaler"}


def test_what_serves_is_wanted_while_another_revision_is_on_its_way_or_refused(
    service: SpeculativeInferenceService, settings: Settings
) -> None:
    world = World(settings)
    first = bring_up(world, service).desired.workload
    edited = decide(parse(QUICKSTART, target__model__uri="file:///other"), settings, world.observed())
    refused = decide(parse(QUICKSTART, runtime__profile="nope"), settings, world.observed())
    for decision in (edited, refused):
        assert not decision.passed
        assert decision.desired.workload == first
    assert fields(refused.desired) == {"workload"}


def test_what_was_given_up_is_checked_anew_before_another_serves_instead(settings: Settings) -> None:
    """Its check is not there any more, say."""
    world = World(settings)
    first = bring_up(world, parse(QUICKSTART)).serves
    edited = parse(QUICKSTART, target__model__uri="file:///other", rollout={"strategy": "Replace"})
    revision = decide(edited, settings, world.observed()).revision
    assert revision
    shown = ServiceStatus.model_validate({"currentRevision": first, "failedRevision": revision.digest})
    given_up = edited.model_copy(update={"status": shown})
    decision = decide(given_up, settings, world.observed())
    assert (decision.instead, decision.serves) == (None, revision.digest)


def test_what_serves_is_left_alone_where_its_revision_is_not_known(settings: Settings) -> None:
    """Made by a newer operator, say."""
    seen = Observed(workloads=[Workload(Live("Deployment", "quickstart-server"), revision="newer")])
    assert decide(parse(QUICKSTART), settings, seen).desired.workload is None


def test_the_claim_is_made_where_there_is_none(settings: Settings) -> None:
    service = parse(QUICKSTART, **CACHED)
    for claim, made in ((None, True), (CacheClaim(made_by_us=True), False)):
        assert bool(decide(service, settings, Observed(claim=claim)).desired.cache_claim) is made
    refused = decide(service, settings, Observed(claim=CacheClaim())).refusal
    assert refused and refused.reason == "CacheNotManagedByTandem"


def test_children_come_after_what_they_need(settings: Settings) -> None:
    manifest = {"kind": "X", "metadata": {"name": "x"}}
    every = {name: {**manifest, "kind": name} for name in Desired.__dataclass_fields__}
    desired = Desired(**{**every, "results": (every["results"],), "jobs": (every["jobs"],)})  # type: ignore[arg-type]
    assert [identity(child)[0] for child in desired.in_order] == [
        *("service_account", "network_policy", "revision", "endpoint", "cache_claim"),
        *("results", "jobs", "disruption_budget", "workload"),
    ], "neither keys nor autoscaler"


def test_only_groups_need_keys(settings: Settings) -> None:
    profile = settings.profile("trtllm-26.07")
    assert profile
    own = settings.model_copy(update={"profiles": [profile.model_copy(update={"name": "own"})]})
    decision = decide(parse(GROUPS), own, Observed())
    assert decision.refusal is None
    assert decision.desired.keys
    assert decide(parse(GROUPS, target__tensorParallelSize=8), own, Observed()).desired.keys is None


def test_a_check_that_refuses_holds_back_the_servers(
    service: SpeculativeInferenceService, settings: Settings
) -> None:
    world = World(settings)
    world.step(service)
    world.finish_preflight(GOOD.replace('"True", "reason": "TokenizersEqual"', '"False", "reason": "Odd"'))
    decision = decide(service, settings, world.observed())
    assert [step.state.stage for step in decision.steps] == [Stage.DONE]
    assert decision.desired.workload is None
    assert decision.desired.results, "the verdict is kept"
    assert replace(decision, steps=()).passed


ENDED = {"name": "triton", "state": {"terminated": {"exitCode": 1}}}
PULLING: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [{"name": "triton", "state": {"waiting": {"reason": "ErrImagePull"}}}],
}
REFUSED = [{"type": "ReplicaFailure", "status": "True", "message": "unable to validate against any security context"}]
NEVER: list[tuple[str, list[dict[str, Any]], list[dict[str, str]], bool]] = [
    ("a quota or OpenShift's constraints refuse its pods", [], REFUSED, True),
    ("its image cannot be pulled", [PULLING], [], True),
    ("the kubelet refused it", [{"phase": "Failed", "reason": "UnexpectedAdmissionError"}], [], True),
    ("one loads", [PULLING, {"phase": "Running"}], [], False),
    ("one ran, and fails", [{"phase": "Failed", "containerStatuses": [ENDED]}], [], False),
    ("there are none, as of one that is scaled to zero", [], [], False),
]


@pytest.mark.parametrize(("reason", "states", "conditions", "heals"), NEVER, ids=[row[0] for row in NEVER])
def test_todays_settings_hold_for_a_revision_of_which_no_pod_ever_ran(
    reason: str, states: list[dict[str, Any]], conditions: list[dict[str, str]], heals: bool, settings: Settings
) -> None:
    """Without an edit of the service. What serves, or loads, is not rolled."""
    world, service = World(settings), parse(QUICKSTART)
    before = bring_up(world, service).revision
    assert before
    labels = world.pods[0]["metadata"]["labels"]
    world.settings = settings.model_copy(update={"user_ids": "Platform"})
    assert world.step(service)[0].revision == before
    deployment = world.objects["Deployment", names.server(service.name)]
    deployment["status"] = {"conditions": conditions, "observedGeneration": 1}
    pods = [{"name": f"p{number}", "labels": labels} for number in range(len(states))]
    world.pods = [
        {"kind": "Pod", "metadata": meta, "status": state} for meta, state in zip(pods, states, strict=True)
    ]
    decision, done = world.step(service)
    assert decision.revision
    assert (decision.revision.digest != before.digest) is heals, reason
    assert ("~Deployment" in done) is heals, reason
    pod = world.objects["Deployment", names.server(service.name)]["spec"]["template"]["spec"]
    assert ("runAsUser" not in pod["securityContext"]) is heals
    for made in world.pods:
        made["metadata"]["labels"] = world.objects["Deployment", names.server(service.name)]["spec"]["template"][
            "metadata"
        ]["labels"]
    again, _ = world.step(service)
    assert again.revision == decision.revision, "it stays with it, though the one before passed, too"
    assert world.step(service)[1] == []
