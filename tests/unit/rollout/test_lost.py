"""A cache volume that is lost, made anew or emptied is filled again, and status says so meanwhile."""

import json
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import COMMIT, GOOD, HUB, NOW, World, bring_up, fetch_jobs, fetched, findings, job_pod
from tandem import names
from tandem.api.types import SpeculativeInferenceService
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.rollout.decide import Decision
from tandem.settings import Settings
from tandem_serving.prepare.cached import Gone

CLAIM = "PersistentVolumeClaim", names.CACHE_CLAIM
KEYS = {"hf://org/target": "a" * 32, "hf://org/draft": "b" * 32}
SERVER = "Deployment", names.server("quickstart")


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


@pytest.fixture
def hub() -> SpeculativeInferenceService:
    return parse(QUICKSTART, **HUB)


def finish_fetches(world: World) -> None:
    for uri, name in fetch_jobs(world).items():
        world.finish(name, fetched(f"models/{KEYS[uri]}"))


def serve(world: World, service: SpeculativeInferenceService) -> Decision:
    """From nothing to Ready."""
    world.step(service)
    finish_fetches(world)
    world.step(service)
    world.pods = []
    return bring_up(world, service)


def settle(world: World, service: SpeculativeInferenceService, most: int = 12) -> list[str]:
    """Step until nothing is to be done, all Jobs done as they come; what was done."""
    everything: list[str] = []
    for _ in range(most):
        finish_fetches(world)
        for name in world.jobs():
            if "status" not in world.objects["Job", name]:
                world.finish(name, BUILT if f"-{names.BUILD}-" in name else GOOD)
        done = world.step(service)[1]
        everything += done
        if not done:
            return everything
    raise AssertionError(f"it does not settle: {everything}")


def results(world: World, component: str = names.FETCH) -> list[dict[str, Any]]:
    labelled = ((each, each["metadata"].get("labels", {})) for each in world.objects.values())
    return [each for each, labels in labelled if labels.get(names.LABEL_COMPONENT) == names.result(component)]


def said(world: World, service: SpeculativeInferenceService, decision: Decision, kind: str) -> str:
    found = status(Situation(service, decision, world.observed(), NOW))["conditions"]
    return str(next(c["message"] for c in found if c["type"] == kind))


def test_what_was_in_a_claim_that_is_made_anew_is_fetched_again(
    world: World, hub: SpeculativeInferenceService
) -> None:
    first = serve(world, hub)
    before = json.dumps(world.objects[SERVER])
    for each in results(world):
        assert each["metadata"]["labels"][names.LABEL_CLAIM] == world.objects[CLAIM]["metadata"]["uid"]
    del world.objects[CLAIM]
    decision, done = world.step(hub)
    assert done == ["+PersistentVolumeClaim", "+Job", "+Job"]
    found = findings(world, hub, decision)
    assert found["ModelsReady"] == "False/CacheReplaced"
    assert (found["Ready"], found["Reconciling"]) == ("False/CacheReplaced", "True/CacheReplaced")
    assert found["Available"] == "True/ServersAnswer"
    assert "Stalled" not in found
    assert "the claim tandem-cache" in said(world, hub, decision, "ModelsReady")
    world.step(hub)
    for uri, name in fetch_jobs(world).items():
        command = world.objects["Job", name]["spec"]["template"]["spec"]["containers"][0]["command"]
        assert command[command.index("--revision") + 1] == COMMIT, f"{uri}: what was there, not what is there now"
    settle(world, hub)
    world.run_servers(1)
    decision, done = world.step(hub)
    assert (done, findings(world, hub, decision)["Ready"]) == ([], "True/ServersAnswer")
    assert json.dumps(world.objects[SERVER]["spec"]) == json.dumps(json.loads(before)["spec"]), "no pod was touched"
    assert decision.revision == first.revision
    for each in [*results(world), *results(world, names.PREFLIGHT)]:
        assert each["metadata"]["labels"][names.LABEL_CLAIM] == world.objects[CLAIM]["metadata"]["uid"]


def test_a_job_that_worked_in_the_claim_before_counts_for_nothing(
    world: World, hub: SpeculativeInferenceService
) -> None:
    world.step(hub)
    assert world.step(hub)[1] == [], "made along with the claim, they are its"
    finish_fetches(world)
    del world.objects[CLAIM]
    assert world.step(hub)[1] == ["+PersistentVolumeClaim", "-Job", "-Job"]
    assert world.step(hub)[1] == ["+Job", "+Job"]
    world.pods = []
    assert world.step(hub)[1] == []
    assert all("status" not in world.objects["Job", name] for name in fetch_jobs(world).values()), "begun anew"
    finish_fetches(world)
    assert "+ConfigMap" in world.step(hub)[1]


# Of a result from before results named their claim: when the claim was made, and whether it is another one.
LEGACY = [("2026-01-01T00:00:00Z", False), ("2030-01-01T00:00:00Z", True)]


@pytest.mark.parametrize(("made", "lost"), LEGACY, ids=["older claim", "newer claim"])
def test_a_result_that_names_no_claim_is_that_of_an_older_one(
    world: World, hub: SpeculativeInferenceService, made: str, lost: bool
) -> None:
    """A new operator fetches nothing again, nor rolls anything, of what an older one left: it notes the claim."""
    serve(world, hub)
    for kind, name in world.objects:
        world.objects[kind, name]["metadata"].get("labels", {}).pop(names.LABEL_CLAIM, None)
    world.objects[CLAIM]["metadata"]["creationTimestamp"] = made
    assert world.step(hub)[1] == (["+Job", "+Job"] if lost else ["~ConfigMap"] * 3)


def test_a_claim_that_was_replaced_while_nothing_runs(world: World, hub: SpeculativeInferenceService) -> None:
    """Scaled to nothing, no pod tells anything; and the servers' revision is not the only one that passed."""
    serve(world, hub)
    world.pods = []
    del world.objects[SERVER]
    del world.objects[CLAIM]
    decision, done = world.step(hub)
    assert done == ["+PersistentVolumeClaim", "+Job", "+Job"]
    assert findings(world, hub, decision)["ModelsReady"] == "False/CacheReplaced"
    settle(world, hub)
    assert SERVER in world.objects


def test_a_source_that_has_not_got_it_any_more_stalls_with_what_to_do(
    world: World, hub: SpeculativeInferenceService
) -> None:
    """A bucket that changed since: what serves goes on, and what is there now is taken when somebody asks for it."""
    serve(world, hub)
    servers = [*world.pods]
    del world.objects[CLAIM]
    world.step(hub)
    (name,) = (name for uri, name in fetch_jobs(world).items() if uri == "hf://org/target")
    world.finish(name, fetched(status="False", reason="RevisionNotFound"))
    decision, done = world.step(hub)
    assert done == []
    found = findings(world, hub, decision)
    assert (found["Stalled"], found["Available"]) == ("True/RevisionNotFound", "True/ServersAnswer")
    wanted = f"delete the Job {name} and the ConfigMap of that name"
    assert wanted in said(world, hub, decision, "ModelsReady")
    del world.objects["Job", name], world.objects["ConfigMap", name]
    world.pods = servers
    world.step(hub)
    command = world.objects["Job", name]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--revision") + 1] == "main"


# --- within one claim -------------------------------------------------------------------------------------
def gone(key: str) -> str:
    """The entry point's last words, by its own code."""
    return f"cannot serve: {Gone.of(f'/cache/models/{key}')}"


def crash(world: World, message: str, at: str) -> None:
    """The one server pod ended so."""
    (pod,) = (pod for pod in world.pods if pod["metadata"]["name"].startswith("server-"))
    ended = {"exitCode": 1, "message": message, "finishedAt": at}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    statuses = [{"name": names.CONTAINER, "ready": False, "state": waiting, "lastState": {"terminated": ended}}]
    pod["status"] = {"phase": "Running", "containerStatuses": statuses}


def test_a_model_that_is_gone_is_fetched_again(world: World, hub: SpeculativeInferenceService) -> None:
    first = serve(world, hub)
    assert world.step(hub)[1] == []
    crash(world, gone(KEYS["hf://org/target"]), "2026-01-02T00:00:00Z")
    decision, done = world.step(hub)
    assert done == ["+Job"], "of this model alone; nothing else is touched"
    assert fetch_jobs(world).keys() == {"hf://org/target"}
    assert findings(world, hub, decision)["ModelsReady"] == "False/GoneFromCache"
    assert KEYS["hf://org/target"] in said(world, hub, decision, "ModelsReady")
    world.run_servers(1, ready=False)  # whoever said so is gone
    decision, done = world.step(hub)
    assert (done, findings(world, hub, decision)["ModelsReady"]) == ([], "False/GoneFromCache"), "it goes on"
    settle(world, hub)
    world.run_servers(1)
    decision, done = world.step(hub)
    assert (done, findings(world, hub, decision)["Ready"]) == ([], "True/ServersAnswer")
    assert decision.revision == first.revision


def refilled(world: World, service: SpeculativeInferenceService, at: str = "2026-01-02T00:00:00Z") -> str:
    """A model was gone, and is back; its result's name. World's clock is of 2026-01-01."""
    serve(world, service)
    crash(world, gone(KEYS["hf://org/target"]), at)
    settle_fetch(world, service)
    (result,) = [each for each in results(world) if names.LABEL_REFILL in each["metadata"]["labels"]]
    result["metadata"]["creationTimestamp"] = at
    return str(result["metadata"]["name"])


def settle_fetch(world: World, service: SpeculativeInferenceService) -> None:
    world.step(service)
    for each in world.objects.values():  # later than what the pods said
        if each["kind"] == "Job":
            each["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    finish_fetches(world)
    world.step(service)
    world.step(service)


@pytest.mark.parametrize(
    ("at", "wanted", "done"),
    [
        ("2026-01-02T00:05:00Z", "True/GoneFromCache", []),
        ("2026-01-02T23:59:59Z", "True/GoneFromCache", []),
        ("2026-01-03T00:00:00Z", "", ["+Job"]),
    ],
)
def test_what_is_gone_again_within_a_day_needs_a_person(
    world: World, hub: SpeculativeInferenceService, at: str, wanted: str, done: list[str]
) -> None:
    name = refilled(world, hub)
    world.run_servers(1, ready=False)
    assert world.step(hub)[1] == []
    crash(world, gone(KEYS["hf://org/target"]), at)
    decision, did = world.step(hub)
    assert did == done
    found = findings(world, hub, decision)
    assert found.get("Stalled", "") == wanted
    assert found["ModelsReady"] == "False/GoneFromCache"
    if not done:
        assert f"delete the ConfigMap {name}" in said(world, hub, decision, "ModelsReady")
        del world.objects["ConfigMap", name]
        assert world.step(hub)[1] == ["+Job"], "as it says"
        world.run_servers(1, ready=False)
        settle(world, hub)
        world.run_servers(1)
        assert findings(world, hub, world.step(hub)[0])["Ready"] == "True/ServersAnswer"


def test_what_a_pod_missed_that_serves_now_is_there(world: World, hub: SpeculativeInferenceService) -> None:
    serve(world, hub)
    crash(world, gone(KEYS["hf://org/target"]), "2026-01-02T00:00:00Z")
    world.pods[0]["status"]["containerStatuses"][0]["ready"] = True
    assert world.step(hub)[1] == []


@pytest.mark.parametrize("key", ["c" * 32, "../../etc"])
def test_a_folder_that_the_service_never_had_is_nothing_to_it(
    world: World, hub: SpeculativeInferenceService, key: str
) -> None:
    serve(world, hub)
    crash(world, gone(key), "2026-01-02T00:00:00Z")
    assert world.step(hub)[1] == []


def test_a_check_that_misses_a_model_is_no_verdict_on_it(world: World, hub: SpeculativeInferenceService) -> None:
    """The volume was emptied between the download and the check, or another service's revision comes to it."""
    world.step(hub)
    finish_fetches(world)
    world.step(hub)
    world.pods = []
    (name,) = world.jobs()
    check = {"type": "ModelsReady", "status": "False", "reason": "ModelGone", "message": gone("a" * 32)}
    world.pods = [job_pod(world.objects["Job", name], json.dumps({"checks": [check]}))]
    world.pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2026-01-02T00:00:00Z"
    world.objects["Job", name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    decision, done = world.step(hub)
    assert done == ["+Job", "-Job"], "fetched again; the check is done anew when it is there"
    assert findings(world, hub, decision)["ModelsReady"] == "False/GoneFromCache"
    world.objects["Job", world.jobs()[0]]["metadata"]["creationTimestamp"] = "2026-01-02T00:00:01Z"
    world.pods = []
    assert results(world, names.PREFLIGHT) == []
    settle(world, hub)
    assert SERVER in world.objects


def test_deleting_all_results_begins_anew(world: World, hub: SpeculativeInferenceService) -> None:
    first = serve(world, hub)
    for kind, name in list(world.objects):
        if kind == "ConfigMap" and names.LABEL_REVISION not in world.objects[kind, name]["metadata"]["labels"]:
            del world.objects[kind, name]
    decision, done = world.step(hub)
    assert done == ["+Job", "+Job"]
    assert findings(world, hub, decision)["Available"] == "True/ServersAnswer"
    settle(world, hub)
    world.run_servers(1)
    decision, done = world.step(hub)
    assert (done, decision.revision) == ([], first.revision)


def test_a_source_that_gives_something_else_meanwhile_is_another_revision(
    world: World, hub: SpeculativeInferenceService
) -> None:
    """Nobody knows the commit any more: what is there now is fetched, checked and rolled out as any edit is."""
    first = serve(world, hub)
    for kind, name in list(world.objects):
        if kind == "ConfigMap" and names.LABEL_REVISION not in world.objects[kind, name]["metadata"]["labels"]:
            del world.objects[kind, name]
    world.step(hub)
    for name in fetch_jobs(world).values():
        world.finish(name, fetched("models/" + "d" * 32))
    decision, done = world.step(hub)
    assert decision.revision is not None
    assert first.revision is not None
    assert decision.revision.digest != first.revision.digest
    assert "~Deployment" not in done
    assert findings(world, hub, decision)["Available"] == "True/ServersAnswer"


def test_going_back_to_what_is_there_asks_nothing_though_its_branch_moved(
    world: World, hub: SpeculativeInferenceService
) -> None:
    """The branch is known at another commit by now, and the revision's own models are still in the volume."""
    first = serve(world, hub)
    target = next(each for each in results(world) if KEYS["hf://org/target"] in each["data"]["verdict.json"])
    del world.objects["ConfigMap", target["metadata"]["name"]]  # as old results are
    edited = parse(QUICKSTART, **{**HUB, "draft__model": {"uri": "hf://org/better"}})
    world.step(edited)
    for name in fetch_jobs(world).values():
        world.finish(name, fetched("models/" + "d" * 32))
    world.step(edited)
    world.step(edited)
    decision, _ = world.step(hub)
    assert decision.revision == first.revision
    assert fetch_jobs(world) == {}
    crash(world, gone(KEYS["hf://org/target"]), "2026-01-02T00:00:00Z")
    decision, done = world.step(hub)
    assert decision.revision is not None
    assert first.revision is not None
    assert decision.revision.digest != first.revision.digest, "lost, and nobody knows its commit: what is there now"
    assert done == ["+ConfigMap", "+Job"]


def test_a_job_that_is_older_than_what_was_lost_has_not_brought_it_back(
    world: World, hub: SpeculativeInferenceService
) -> None:
    """A finalizer of somebody's may keep it."""
    world.step(hub)
    finish_fetches(world)
    jobs = {key: obj for key, obj in world.objects.items() if key[0] == "Job"}
    pods = [*world.pods]
    world.step(hub)
    world.pods = []
    bring_up(world, hub)
    world.objects |= jobs
    world.pods += pods
    crash(world, gone(KEYS["hf://org/target"]), "2026-01-02T00:00:00Z")
    decision, done = world.step(hub)
    assert done == ["-Job", "-Job"]
    assert findings(world, hub, decision)["ModelsReady"] == "False/GoneFromCache"
    assert world.step(hub)[1] == ["+Job"]


BUILT = json.dumps({"checks": [{"type": "EnginesReady", "status": "True", "reason": "Built", "message": "1 rank"}]})


def test_engines_are_built_again_where_the_claim_is_another(world: World) -> None:
    service = parse(QUICKSTART, **HUB, runtime={"mode": "BLS", "profile": "trtllm-26.07"})
    serve_engines(world, service)
    del world.objects[CLAIM]
    decision, done = world.step(service)
    assert done == ["+PersistentVolumeClaim", "+Job", "+Job"], "the models first"
    assert findings(world, service, decision)["EnginesReady"] == "Unknown/CacheReplaced"
    finish_fetches(world)
    for _ in range(3):
        decision, _ = world.step(service)
    assert {name.split("-")[1] for name in world.jobs()} == {names.BUILD}
    assert findings(world, service, decision)["EnginesReady"] == "False/CacheReplaced"
    settle(world, service)
    world.run_servers(1)
    assert findings(world, service, world.step(service)[0])["Ready"] == "True/ServersAnswer"


def test_an_engine_that_is_gone_is_built_again(world: World) -> None:
    service = parse(QUICKSTART, **HUB, runtime={"mode": "BLS", "profile": "trtllm-26.07"})
    decision = serve_engines(world, service)
    assert decision.revision is not None
    folder = decision.revision.builds[next(iter(decision.revision.builds))].folder
    crash(world, f"cannot serve: {Gone.of(folder)}", "2026-01-02T00:00:00Z")
    decision, done = world.step(service)
    assert done == ["+Job"]
    assert [f"-{names.BUILD}-" in name for name in world.jobs()] == [True]
    found = findings(world, service, decision)
    assert (found["EnginesReady"], found["Available"]) == ("False/GoneFromCache", "False/ServersNotReady")


def serve_engines(world: World, service: SpeculativeInferenceService) -> Decision:
    world.step(service)
    settle(world, service)
    world.run_servers(1)
    return world.step(service)[0]
