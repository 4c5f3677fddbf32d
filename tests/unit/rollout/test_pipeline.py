"""Services whose models are downloaded: what is made when, and what the user is told."""

import json
from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import BAD, GOOD, HUB, NOW, World, fetch_jobs, fetched, findings, job_pod
from tandem import names
from tandem.api.roles import Role
from tandem.api.types import SpeculativeInferenceService, UserIds
from tandem.children import Task
from tandem.children.prune import prune_pod
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.render import LATEST, Record, render
from tandem.render.latest import pod_security
from tandem.rollout.observed import Observed
from tandem.rollout.pipeline import build_tasks, fetch_tasks, preflight_task
from tandem.rollout.prune import common_fields
from tandem.settings import Settings


@pytest.fixture
def hub() -> SpeculativeInferenceService:
    return parse(QUICKSTART, **HUB)


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def allowed(command: list[str]) -> tuple[str, ...]:
    """Patterns of the files that a download takes; none: those of a model."""
    return tuple(command[i + 1] for i, word in enumerate(command) if word == "--allow")


def test_models_are_fetched_then_checked_then_served(world: World, hub: SpeculativeInferenceService) -> None:
    decision, done = world.step(hub)
    assert done == ["+ServiceAccount", "+Service", "+PersistentVolumeClaim", "+Job", "+Job"], "no revision yet"
    assert findings(world, hub, decision)["ModelsReady"] == "Unknown/FetchRunning"
    assert findings(world, hub, decision)["PairCompatible"] == "Unknown/FetchRunning"
    jobs = fetch_jobs(world)
    assert jobs.keys() == {"hf://org/target", "hf://org/draft"}

    world.finish(jobs["hf://org/target"], fetched())
    assert world.step(hub)[1] == ["+ConfigMap", "-Job"], "one verdict is kept, the other Job goes on"
    world.finish(jobs["hf://org/draft"], fetched("models/" + "b" * 32))
    decision, done = world.step(hub)
    assert done == ["+ConfigMap", "+ConfigMap", "+Job", "-Job"], "the revision, the second verdict, the preflight"
    assert decision.revision is not None
    assert json.loads(decision.revision.files["launch.json"])["preflight"]["target"] == {
        "path": "/cache/models/" + "a" * 32
    }
    world.pods = []
    world.finish_preflight(GOOD)
    decision, done = world.step(hub)
    assert done == ["+ConfigMap", "+PodDisruptionBudget", "+Deployment", "-Job"]
    assert findings(world, hub, decision)["ModelsReady"] == "True/FilesFound"
    world.run_servers(1)
    decision, done = world.step(hub)
    assert (done, findings(world, hub, decision)["Ready"]) == ([], "True/ServersAnswer")


def test_the_download_of_a_secrets_owner(world: World, hub: SpeculativeInferenceService) -> None:
    world.step(hub)
    pod = world.objects["Job", fetch_jobs(world)["hf://org/target"]]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == [
        *("python3", "-m", "tandem_fetcher", "fetch", "--uri", "hf://org/target", "--cache", "/cache"),
        *("--revision", "main", "--port", "8080", "--termination-log", "/dev/termination-log"),
    ]
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert pod["volumes"][0] == {"name": "cache", "persistentVolumeClaim": {"claimName": names.CACHE_CLAIM}}
    other = world.objects["Job", fetch_jobs(world)["hf://org/draft"]]["spec"]["template"]["spec"]
    assert "envFrom" not in other["containers"][0], "a Secret goes to its own model's download alone"


def test_a_download_goes_where_the_servers_run(settings: Settings) -> None:
    """A volume of one zone is made where its first pod is. Only servers keep apart from other pods."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    placement = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": nodes, "podAntiAffinity": {}},
    }
    pod = fetch_tasks(parse(QUICKSTART, **HUB, placement=placement), settings, Observed())[Role.TARGET].pod
    wanted = {**placement, "affinity": {"nodeAffinity": nodes}}
    assert {name: pod.get(name) for name in placement} == wanted


def placed(pod: dict[str, Any]) -> dict[str, Any]:
    """By which fields of a PodSpec nodes are chosen, apart from other pods on them."""
    nodes = (pod.get("affinity") or {}).get("nodeAffinity")
    named = ("nodeSelector", "tolerations", "priorityClassName", "runtimeClassName", "schedulerName")
    return {**{name: pod.get(name) for name in named}, "nodes": nodes}


def test_every_pod_is_scheduled_as_the_servers_are(settings: Settings) -> None:
    """Downloads, builds, the check, the clearing: a RuntimeClass may select nodes, a local volume is of one."""
    placement = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "gpu": {"product": ["NVIDIA-L4"]},
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
    }
    service = parse(QUICKSTART, **HUB, runtime__profile="trtllm-26.07", placement=placement)
    world, pods = World(settings), dict[str, dict[str, Any]]()
    while not pods.get("server"):
        world.step(service)
        for kind, name in world.objects:
            if kind in ("Job", "Deployment"):
                component = world.objects[kind, name]["metadata"]["labels"][names.LABEL_COMPONENT]
                pods[component] = world.objects[kind, name]["spec"]["template"]["spec"]
        for name in world.jobs():
            world.finish(name, fetched() if f"-{names.FETCH}-" in name else GOOD)
    revisions = world.observed().revisions
    pods["prune"] = prune_pod("claim", "image", [], common_fields(revisions, names.CACHE_CLAIM))
    assert pods.keys() == {names.FETCH, names.BUILD, names.PREFLIGHT, names.SERVER, "prune"}
    assert None not in placed(pods["server"]).values()
    for component, pod in pods.items():
        assert placed(pod) == placed(pods["server"]), component
    elsewhere = common_fields(revisions, "another-claim")
    assert placed(elsewhere)["runtimeClassName"] is None, "a claim that no service mounts"


def test_every_pod_pulls_with_the_users_secrets(world: World) -> None:
    secrets = [{"name": "registry"}]
    one = {"target__model": {"uri": "hf://o/m"}, "draft__model": {"uri": "hf://o/m"}}
    service = parse(QUICKSTART, **one, podTemplate={"spec": {"imagePullSecrets": secrets}})
    for message in (fetched(), GOOD, None):
        world.step(service)
        for kind, name in world.objects:
            if kind in ("Job", "Deployment"):
                pod = world.objects[kind, name]["spec"]["template"]["spec"]
                assert pod["imagePullSecrets"] == secrets, name
        if message:
            world.finish(world.jobs()[-1], message)
    assert ("Deployment", names.server("quickstart")) in world.objects


def test_one_model_for_both_roles_is_fetched_once(world: World) -> None:
    same = parse(QUICKSTART, target__model={"uri": "hf://o/m"}, draft__model={"uri": "hf://o/m"})
    assert world.step(same)[1].count("+Job") == 1
    world.finish(world.jobs()[0], fetched())
    decision, _ = world.step(same)
    assert decision.revision is not None
    checks = json.loads(decision.revision.files["launch.json"])["preflight"]
    assert checks["target"]["path"] == checks["draft"]["path"]


def test_a_tokenizer_is_fetched_without_the_weights_beside_it(world: World) -> None:
    model = {**HUB["draft__model"], "tokenizer": {"uri": "hf://org/target"}}
    world.step(parse(QUICKSTART, target__model={"uri": "hf://org/target"}, draft__model=model))
    containers = [world.objects["Job", name]["spec"]["template"]["spec"]["containers"][0] for name in world.jobs()]
    fetched = {(command[5], allowed(command)) for command in (each["command"] for each in containers)}
    tokenizer = ("tokenizer*", "special_tokens_map.json", "*.jinja", "generation_config.json", "config.json")
    assert fetched == {("hf://org/target", ()), ("hf://org/draft", ()), ("hf://org/target", tokenizer)}


def test_heads_are_fetched_as_they_are_published(settings: Settings) -> None:
    """EAGLE-3's own for Llama 3.1 are a pytorch_model.bin."""
    eagle = parse(
        QUICKSTART,
        runtime={"mode": "LLMAPI", "profile": "trtllm-26.07"},
        target__model={"uri": "hf://org/target"},
        draft__model={"uri": "hf://org/heads"},
        speculation={"decodingType": "Eagle3"},
    )
    tasks = fetch_tasks(eagle, settings, Observed())
    wanted = {role: allowed(task.pod["containers"][0]["command"]) for role, task in tasks.items()}
    assert wanted == {Role.TARGET: (), Role.DRAFT: ("*.json", "*.safetensors", "*.bin")}


def test_a_claim_of_the_users_own_is_used_and_none_is_made(world: World) -> None:
    own = parse(QUICKSTART, **HUB, storage={"cache": {"claimName": "mine"}})
    assert "+PersistentVolumeClaim" not in world.step(own)[1]
    for name in world.jobs():
        pod = world.objects["Job", name]["spec"]["template"]["spec"]
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "mine"}


def test_in_another_claim_nothing_is_done_yet(settings: Settings) -> None:
    """Downloads, engines and their check: what is recorded of one claim is not true of the other."""
    engines = {"runtime__profile": "trtllm-26.07", **HUB}
    made = [tasks(parse(QUICKSTART, **engines, storage={"cache": cache}), settings) for cache in CLAIMS]
    assert [set(names) for names in zip(*made, strict=True) if len(set(names)) != len(CLAIMS)] == []
    bigger = parse(QUICKSTART, **engines, storage={"cache": {"size": "1Ti"}})
    assert tasks(bigger, settings) == made[0], "the same claim"
    mounted = {path: {"uri": "pvc://weights/model"} for path in ("target__model", "draft__model")}
    here, there = (tasks(parse(QUICKSTART, **mounted, storage={"cache": c}), settings) for c in CLAIMS[:2])
    assert here == there, "nothing is in the claim"


CLAIMS: list[dict[str, str]] = [{}, {"claimName": "mine"}, {"claimName": "larger"}]


@pytest.mark.parametrize("user_ids", ["Fixed", "Platform"])
def test_pods_of_tasks_are_labelled_and_run_as_the_settings_have_it(settings: Settings, user_ids: UserIds) -> None:
    settings = settings.model_copy(update={"user_ids": user_ids})
    engines = parse(QUICKSTART, **HUB, runtime__profile="trtllm-26.07", jobs={"labels": {"team": "a"}})
    made = made_tasks(engines, settings)
    assert {task.component for task in made} == {names.FETCH, names.BUILD, names.PREFLIGHT}
    for task in made:
        assert task.pod["securityContext"] == pod_security(user_ids)
        assert task.metadata["labels"] == {"team": "a"}


def tasks(service: SpeculativeInferenceService, settings: Settings) -> list[str]:
    """Names of the Jobs between a spec and its servers."""
    return [task.name for task in made_tasks(service, settings)]


def made_tasks(service: SpeculativeInferenceService, settings: Settings) -> list[Task]:
    record = Record(
        renderer=LATEST,
        serving_image=settings.serving_image,
        profile=next(p for p in settings.profiles if p.name == service.spec.runtime.profile),
        spec=service.spec,
        fetched=dict.fromkeys((Role.TARGET, Role.DRAFT), "/cache/models/" + "a" * 32),
    )
    revision = render(record)
    fetches, builds = fetch_tasks(service, settings, Observed()), build_tasks(service, settings, revision)
    return [*fetches.values(), *builds.values(), preflight_task(service, settings, revision)]


def test_a_refused_download_stalls_and_deleting_its_job_tries_again(
    world: World, hub: SpeculativeInferenceService
) -> None:
    world.step(hub)
    name = fetch_jobs(world)["hf://org/target"]
    world.finish(name, fetched(status="False", reason="TokenNeeded"))
    decision, done = world.step(hub)
    assert done == [], "the verdict may change with a Secret: it is not kept, its Job is"
    found = findings(world, hub, decision)
    assert found["ModelsReady"] == "False/TokenNeeded"
    assert found["Stalled"] == "True/TokenNeeded"
    shown = status(Situation(hub, decision, world.observed(), NOW))
    told = {c["type"]: c["message"] for c in shown["conditions"]}
    advice = f"7 bytes in 1 files; unless you edit this service, delete the Job {name} to try again"
    assert [told[kind] for kind in ("ModelsReady", "PairCompatible", "Ready", "Stalled")] == [advice] * 4
    del world.objects["Job", name]
    world.pods = []
    assert world.step(hub)[1] == ["+Job"]


WAITING = {"phase": "Pending"}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "Job was active longer than its deadline"}]}
# The pod's status (None: no pod yet), the Job's, what of the spec is edited, and what is done.
EDITS: dict[str, tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any], list[str]]] = {
    "no node takes it, and another one may": (WAITING, {}, {"placement__nodeSelector": {"pool": "a"}}, ["-Job"]),
    "no node tolerates it, and may now": (WAITING, {}, {"placement__tolerations": [{"key": "a"}]}, ["-Job"]),
    "no quota for a pod, and other nodes": (None, {}, {"placement__nodeSelector": {"pool": "a"}}, ["-Job"]),
    "it ran out of time": (WAITING, FAILED, {"placement__nodeSelector": {"pool": "a"}}, ["-Job"]),
    "it works": ({"phase": "Running"}, {}, {"placement__nodeSelector": {"pool": "a"}}, []),
    "no node takes it, and the edit concerns servers": (WAITING, {}, {"replicas": 2}, []),
    "it ran out of time, and the edit concerns servers": (WAITING, FAILED, {"replicas": 2}, []),
}


@pytest.mark.parametrize("row", EDITS.values(), ids=EDITS)
def test_a_job_that_cannot_begin_is_made_anew_as_the_spec_now_asks(
    world: World, row: tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any], list[str]]
) -> None:
    pod, job, edit, done = row
    one = {"target__model": {"uri": "hf://org/model"}, "draft__model": {"uri": "hf://org/model"}}
    world.step(parse(QUICKSTART, **one))
    (name,) = world.jobs()
    world.objects["Job", name]["status"] = job
    world.pods = [{**job_pod(world.objects["Job", name], ""), "status": pod}] if pod else []
    edited = parse(QUICKSTART, **one, **edit)
    assert world.step(edited)[1] == done
    assert world.step(edited)[1] == (["+Job"] if done else [])
    assert world.step(edited)[1] == [], "once"


def test_the_verdict_is_that_of_the_pod_that_succeeded(world: World) -> None:
    """A pod that fails leaves its word too, and is kept beside those that tried again."""
    one = parse(QUICKSTART, target__model={"uri": "hf://o/m"}, draft__model={"uri": "hf://o/m"})
    world.step(one)
    job = world.objects["Job", world.jobs()[0]]
    killed = job_pod(job, "", "Failed")
    interrupted = job_pod(job, fetched(status="Unknown", reason="Interrupted", path=""), "Failed")
    world.pods = [killed, interrupted]
    world.finish(job["metadata"]["name"], fetched())
    decision, done = world.step(one)
    assert done == ["+ConfigMap", "+ConfigMap", "+Job", "-Job"]
    assert findings(world, one, decision)["ModelsReady"] == "Unknown/PreflightRunning"


def test_a_job_that_is_tried_again_has_no_verdict_of_the_one_before(
    world: World, hub: SpeculativeInferenceService
) -> None:
    world.step(hub)
    name = fetch_jobs(world)["hf://org/target"]
    world.finish(name, fetched(status="False", reason="TokenNeeded"))
    del world.objects["Job", name]
    world.step(hub)
    world.finish(name, fetched())
    assert findings(world, hub, world.step(hub)[0])["ModelsReady"] == "Unknown/FetchRunning", "of the draft's"


PATHS = ["", "../../etc", "/etc", "models/..", "models/" + "a" * 32 + "/../x", "engines/" + "a" * 32]


@pytest.mark.parametrize("path", PATHS)
def test_a_pod_names_no_folder_outside_the_models(world: World, hub: SpeculativeInferenceService, path: str) -> None:
    world.step(hub)
    for name in fetch_jobs(world).values():
        world.finish(name, fetched(path))
    decision, _ = world.step(hub)
    assert decision.revision is None
    assert findings(world, hub, decision)["Stalled"] == "True/FetchFailed"


def test_an_edit_ends_the_download_of_what_nobody_wants(world: World, hub: SpeculativeInferenceService) -> None:
    world.step(hub)
    old = fetch_jobs(world)["hf://org/draft"]
    edited = parse(QUICKSTART, **{**HUB, "draft__model": {"uri": "hf://org/better"}})
    assert world.step(edited)[1] == ["+Job", "-Job"]
    assert old not in world.jobs()


def test_going_back_to_what_serves_fetches_nothing(world: World, hub: SpeculativeInferenceService) -> None:
    world.step(hub)
    for number, name in enumerate(fetch_jobs(world).values()):
        world.finish(name, fetched("models/" + str(number) * 32))
    world.step(hub)
    world.pods = []
    world.finish_preflight(GOOD)
    world.step(hub)
    world.run_servers(1)
    world.step(parse(QUICKSTART, **{**HUB, "draft__model": {"uri": "hf://org/better"}}))
    for kind, name in list(world.objects):
        if kind == "ConfigMap" and f"-{names.FETCH}-" in name:
            del world.objects[kind, name]
    assert world.step(hub)[1] == ["-Job"], "the revision knows where its models are"


def test_what_serves_goes_on_while_another_models_download_fails(
    world: World, service: SpeculativeInferenceService
) -> None:
    world.step(service)
    world.finish_preflight(GOOD)
    world.step(service)
    world.run_servers(1)
    edited = parse(QUICKSTART, target__model={"uri": "hf://org/target"}, replicas=1)
    world.step(edited)
    world.finish(world.jobs()[0], fetched(status="False", reason="NotFound"))
    decision, done = world.step(edited)
    assert done == []
    assert findings(world, edited, decision)["Available"] == "True/ServersAnswer"


@pytest.mark.parametrize(
    ("storage", "modes", "refused", "reason"),
    [
        ({}, None, False, "ReadWriteMany is what Tandem asks for"),
        ({"cache": {"accessModes": ["ReadWriteOnce"]}}, None, True, "the claim to make is of one node"),
        ({"cache": {"claimName": "mine"}}, ["ReadWriteOnce"], True, "the claim that is there is of one node"),
        ({"cache": {"claimName": "mine"}}, ["ReadOnlyMany"], False, "reading is enough for servers"),
    ],
)
def test_a_claim_of_one_node_serves_one_replica(
    settings: Settings, storage: dict[str, Any], modes: list[str] | None, refused: bool, reason: str
) -> None:
    world = World(settings)
    if modes:
        world.objects["PersistentVolumeClaim", names.CACHE_CLAIM] = {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": names.CACHE_CLAIM},
            "spec": {"accessModes": modes},
        }
    decision, _ = world.step(parse(QUICKSTART, **HUB, storage=storage, replicas=2))
    assert (decision.refusal is not None) is refused, reason
    assert world.step(parse(QUICKSTART, **HUB, storage=storage, replicas=1))[0].refusal is None


def test_a_claim_of_our_name_that_somebody_else_made_is_not_used(
    world: World, hub: SpeculativeInferenceService
) -> None:
    theirs = {"kind": "PersistentVolumeClaim", "metadata": {"name": names.CACHE_CLAIM, "uid": "u"}, "spec": {}}
    world.objects["PersistentVolumeClaim", names.CACHE_CLAIM] = theirs
    decision, done = world.step(hub)
    assert done == [], "no Job mounts it"
    assert findings(world, hub, decision)["SpecAccepted"] == "False/CacheNotManagedByTandem"
    named = parse(QUICKSTART, **HUB, storage={"cache": {"claimName": names.CACHE_CLAIM}})
    assert world.step(named)[1].count("+Job") == 2, "named, it is the user's choice"


def test_a_pairs_verdict_reaches_the_user_after_downloads(world: World, hub: SpeculativeInferenceService) -> None:
    world.step(hub)
    for name in fetch_jobs(world).values():
        world.finish(name, fetched())
    world.step(hub)
    world.pods = []
    world.finish_preflight(BAD)
    decision, _ = world.step(hub)
    found = findings(world, hub, decision)
    assert (found["ModelsReady"], found["PairCompatible"]) == ("True/FilesFound", "False/TokenizersDiffer")


def test_a_job_that_gets_no_pod_says_where_to_look(world: World) -> None:
    """A quota, or an admission webhook, that keeps its pods from being made is told in the Job's Events alone."""
    service = parse(QUICKSTART)
    decision, _ = world.step(service)
    made = [step.state.detail for step in decision.steps]
    decision, _ = world.step(service)
    (step,) = decision.steps
    assert step.state.detail.endswith(f"if it gets no pod, see kubectl describe job {step.task.name}")
    assert [step.state.detail] == made, "no write of the status for each moment that a Job waits for its pod"
    (name,) = world.jobs()
    world.pods = [job_pod(world.objects["Job", name], "", "Running")]
    decision, _ = world.step(service)
    assert decision.steps[0].state.detail == f"Job {name} checks the models"
