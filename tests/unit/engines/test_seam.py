"""The seam of engines: nothing else asks which one a service has, and a made-up one goes all the way."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import tandem
from support.reports import report
from support.services import QUICKSTART, parse
from support.world import NOW, observed_of
from tandem.accept import Accepted, Refusal, accept
from tandem.api.conditions import ConditionType, SpecReason
from tandem.api.decoding import DecodingType, Mode
from tandem.api.profile import Profile
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.children import revision_configmap
from tandem.children.leaderworkerset import leader_worker_set
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import verdicts
from tandem.conditions.writes import Reading
from tandem.engines import KINDS, Engine, wrong_engine
from tandem.engines.engine import Worker
from tandem.engines.gpus import GpuPlan, over_nodes
from tandem.engines.request_parameters import Entry, Facts, Outcome
from tandem.engines.rule import EngineRule
from tandem.rollout.decide import decide
from tandem.rollout.observed import Observed
from tandem.settings import Settings

SOURCE = Path(tandem.__file__).parent
MAY_COMPARE = {
    "engines": "they are the engines",
    "api": "the types: which fields go with a mode, as CEL",
    "render/v1/__init__.py": "the Triton models around an engine, by who runs the loop",
    "render/v1/bls_variables.py": "mode BLS: whether its engines take several sequences in a call",
}
"""Files and folders, and why."""
CLASSES = [engine.__name__ for modes in KINDS.values() for engine in modes.values()]
WORDS = {*Mode, *KINDS, "Together", "Collected"}
ABOUT_ENGINES = ("mode", "dialect", "kind", "calls", "version")


def comparisons(tree: ast.Module) -> Iterator[str]:
    """Where code asks for a mode, a dialect, or what an engine is called."""
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            sides = [key for key in node.keys if key]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield from (f"{node.lineno}: {each}" for each in CLASSES if each in ast.unparse(node.args[1]))
        for text in map(ast.unparse, sides):
            first, _, last = text.rpartition(".")
            of_engine = first.endswith((".engine", "engine", ".runtime")) and last in ABOUT_ENGINES
            if text.startswith(("Mode.", "Dialect.")) or of_engine or text.strip("'") in WORDS:
                yield f"{getattr(node, 'lineno', 0)}: {text}"


def found_in(source: str) -> list[str]:
    return list(comparisons(ast.parse(source)))


def test_nothing_else_asks_which_engine_a_service_has() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{each}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(path.relative_to(SOURCE).is_relative_to(place) for place in MAY_COMPARE)
        for each in comparisons(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == [], "ask tandem.engines.engine_of or loop_of instead: docs/contributing.md, An engine"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("spec.runtime.mode is Mode.BLS", True),
        ("x if service.spec.runtime.mode == 'BLS' else y", True),
        ("{Mode.BLS: 1}", True),
        ("profile.engine.kind == 'Tandem'", True),
        ("engine.dialect in (Dialect.V1_2,)", True),
        ("match mode:\n    case Mode.BLS:\n        pass", True),
        ("live.kind == 'Pod'", False),
        ("calls == 'Collected'", True),
        ("server.mode == 'BLS'", True),
        ("{'LLMAPI': 1}", True),
        ("isinstance(engine, TensorRTLLM)", True),
        ("f(spec.runtime.mode)", False),
    ],
)
def test_what_is_found(source: str, found: bool) -> None:
    assert bool(found_in(source)) is found


@pytest.mark.parametrize(
    ("engine", "wrong"),
    [
        ({"kind": "vLLM-like"}, "engine.kind 'vLLM-like' is not known: write one of TensorRT-LLM, vLLM, Tandem"),
        ({"kind": "TensorRT-LLM"}, "engine: Tandem runs TensorRT-LLM 1.2 and newer, and no version is written"),
        (
            {"kind": "TensorRT-LLM", "version": "1.1.0"},
            "engine: Tandem runs TensorRT-LLM 1.2 and newer, and 1.1.0 is",
        ),
        ({"kind": "TensorRT-LLM", "version": "1.3rc27"}, ""),
        ({"kind": "Tandem"}, ""),
        ({"kind": "vLLM", "version": "0.23.9"}, "engine: Tandem runs vLLM 0.24 and newer, and 0.23.9 is written"),
        ({"kind": "vLLM", "version": "0.40.0"}, ""),
    ],
)
def test_engines_that_are_not_known_are_refused_at_the_start(engine: dict[str, str], wrong: str) -> None:
    found = wrong_engine(Profile.model_validate({"name": "own", "engine": engine}))
    assert found.startswith(wrong)
    assert bool(found) is bool(wrong)


@pytest.mark.parametrize("version", ["1.3", "1.4.0"])
def test_engines_of_tensorrt_end_with_1_2(version: str, settings: Settings) -> None:
    profile = Profile.model_validate(
        {"name": "own", "image": "i", "engine": {"kind": "TensorRT-LLM", "version": version}}
    )
    mine = settings.model_copy(update={"profiles": [profile]})
    refused = accept(parse(SERVICE, runtime={"mode": "BLS", "profile": "own"}).spec, mine)
    assert isinstance(refused, Refusal)
    assert refused.message == (
        "profile 'own' cannot run mode BLS (Tandem builds TensorRT engines with TensorRT-LLM 1.2, and"
        f" {version} is written): write runtime.mode: LLMAPI, or another profile"
    )


SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: made}
  target: {model: {uri: file:///models/t}, tensorParallelSize: 2}
  speculation: {decodingType: NGram}
"""


def _no_schedule(spec: ServiceSpec, engine: "Made") -> Refusal | None:
    if spec.speculation.draft_len_schedule is None:
        return None
    message = f"{engine.title} has a fixed draft length: remove speculation.draftLenSchedule"
    return Refusal(SpecReason.SCHEDULE_NOT_IN_PROFILE, message)


class Made(Engine):
    """All of an engine that does not exist."""

    kind = "Made"
    mode = Mode.LLMAPI
    rules: ClassVar[Sequence[EngineRule]] = (_no_schedule,)
    parameters: ClassVar[Mapping[str, Facts]] = {
        "Made": Facts("always", {"seed": Entry(Outcome.IGNORED, "counts to three")}, instead="count yourself")
    }
    judges_arguments = True
    counts_draft_tokens = False
    check = "made.check"
    instead: ClassVar[Mapping[DecodingType, str]] = {DecodingType.EAGLE3: "count to three instead"}
    least_compute_capability = (9, 0)
    own_environment = ("MADE_KEY",)
    worker = Worker(("join", "--made"), {"made": 7000})

    @property
    def decoding_types(self) -> Sequence[DecodingType]:
        return (DecodingType.NGRAM, DecodingType.NONE)

    def gpu_plan(self, spec: ServiceSpec) -> GpuPlan:
        return over_nodes(spec)

    def environment(self, plan: GpuPlan) -> dict[str, str]:
        return {"MADE_RANKS": str(plan.gpus)}

    def arguments(self, spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
        return {"weights": folders[Role.TARGET], "guesses": spec.speculation.max_draft_len}


def test_tandems_engine_is_on_one_node(settings: Settings) -> None:
    own = Profile.model_validate({"name": "own", "image": "i", "engine": {"kind": "Tandem"}})
    mine = settings.model_copy(update={"profiles": [own]})
    changes = {"runtime": {"mode": "LLMAPI", "profile": "own"}, "target__tensorParallelSize": 16}
    refused = accept(parse(SERVICE, **changes).spec, mine)
    assert isinstance(refused, Refusal)
    assert refused.message.startswith("the engine of profile own in mode LLMAPI runs on one node: target")


def test_a_revision_of_an_engine_that_is_not_known_is_not_rendered(settings: Settings) -> None:
    """As after a downgrade: its ConfigMap stays, and nothing of it is judged."""
    revision = decide(parse(QUICKSTART), settings, Observed()).revision
    assert revision
    known = revision_configmap(parse(QUICKSTART), revision)
    record = json.loads(known["data"]["record.json"])
    record["profile"]["engine"] = {"kind": "FromTomorrow"}
    newer = {**known, "data": {**known["data"], "record.json": json.dumps(record)}}
    found = observed_of(known, newer).revisions
    assert sorted(each.record is None for each in found) == [False, True]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Settings:
    """Settings with a profile of it."""
    monkeypatch.setitem(KINDS, "Made", {Mode.LLMAPI: Made})
    engine = {"kind": "Made", "version": "9", "env": {"MADE": "1"}}
    profile = Profile.model_validate({"name": "made", "image": "made:9", "verified": True, "engine": engine})
    return settings.model_copy(update={"profiles": [*settings.profiles, profile]})


def test_a_made_up_engine_is_rendered(made: Settings) -> None:
    revision = decide(parse(SERVICE), made, Observed()).revision
    assert revision
    launch = json.loads(revision.files["launch.json"])
    assert yaml.safe_load(revision.files["llm_args.yaml"]) == {"weights": "/models/t", "guesses": 4}
    assert launch["env"] == {"MADE": "1", "MADE_RANKS": "2"}
    assert launch["preflight"]["llm_args"]["engine"] == "Made"
    assert launch["preflight"]["engine_check"]["module"] == "made.check"
    assert 'string_value: "Made"' in revision.files["tensorrt_llm_stream.config.pbtxt"]
    (container,) = [each for each in revision.pod["containers"] if each["name"] == "triton"]
    assert container["image"] == "made:9"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("profile", "by_ssh"), [("made", False), ("vllm-26.08", False), ("trtllm-26.07", True), ("trtllm-1.3", True)]
)
def test_a_group_has_keys_where_its_leader_starts_ranks_by_ssh(made: Settings, profile: str, by_ssh: bool) -> None:
    profiles = [each.model_copy(update={"image": each.image or "own:1"}) for each in made.profiles]
    block = {"isKeepAll": False, "isPublicPool": False}
    asked = {"runtime__profile": profile, "target__tensorParallelSize": 16, "speculation__nGram": block}
    service = parse(SERVICE, **asked)
    decision = decide(service, made.model_copy(update={"profiles": profiles}), Observed())
    assert decision.revision, decision.refusal
    assert bool(decision.desired.keys) is by_ssh
    assert ("group" in json.loads(decision.revision.files["launch.json"])) is by_ssh
    group = leader_worker_set(service, decision.revision)
    assert group
    for role in ("leaderTemplate", "workerTemplate"):
        pod = group["spec"]["leaderWorkerTemplate"][role]["spec"]
        mounted = {mount["name"] for each in pod["containers"] for mount in each.get("volumeMounts", ())}
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert ("ssh" in mounted) is ("ssh" in volumes) is by_ssh


def test_its_groups(made: Settings) -> None:
    revision = decide(parse(SERVICE, target__tensorParallelSize=16), made, Observed()).revision
    assert revision
    assert revision.worker
    (container,) = revision.worker["containers"]
    assert container["command"][-2:] == ["join", "--made"]
    assert container["ports"] == [{"name": "made", "containerPort": 7000, "protocol": "TCP"}]
    (term,) = _required(revision.worker)["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [str(major) for major in range(1, 9)], "older than it runs on"


def _required(pod: Mapping[str, Any]) -> Any:
    return pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"runtime__mode": "BLS"},
            "profile 'made' cannot run mode BLS: write runtime.mode: LLMAPI, or another profile",
        ),
        ({"speculation__decodingType": "MTP"}, "cannot run decodingType MTP in mode LLMAPI: write"),
        (
            {"speculation__decodingType": "Eagle3", "draft": {"model": {"uri": "file:///models/d"}}},
            "cannot run decodingType Eagle3 in mode LLMAPI: count to three instead",
        ),
        (
            {"placement__gpu": {"product": ["NVIDIA-L4"]}},
            "NVIDIA-L4 has compute capability 8.9, and Made 9 needs 9.0 or newer: name a newer product",
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "triton", "env": [{"name": "MADE_KEY"}]}]}}},
            "MADE_KEY is set by Tandem: remove it",
        ),
        (
            {"jobs": {"env": [{"name": "MADE_RANKS", "value": "1"}]}},
            "jobs.env[0]: MADE_RANKS is set by Tandem: remove it",
        ),
        (
            {"speculation__draftLenSchedule": [{"maxBatchSize": 4, "draftLen": 4}]},
            "Made 9 has a fixed draft length: remove speculation.draftLenSchedule",
        ),
    ],
)
def test_messages_have_its_name(made: Settings, changes: dict[str, Any], message: str) -> None:
    refused = accept(parse(SERVICE, **changes).spec, made)
    assert isinstance(refused, Refusal)
    assert message in refused.message


def test_its_figures_and_its_parameters_of_requests(made: Settings) -> None:
    service = parse(SERVICE)
    nothing = report(
        **{"speculation": {"drafted": False, "acceptanceRate": None, "meanAcceptedLength": None, "samples": 0}}
    )
    situation = Situation(service, decide(service, made, Observed()), Observed(), NOW, reading=Reading(nothing))
    (active,) = [finding for finding in verdicts(situation) if finding.type == ConditionType.SPECULATION_ACTIVE]
    assert (active.status, active.reason) == ("Unknown", "NotReported")
    assert active.message == "Made 9 does not report how many tokens it drafts"
    accepted = accept(service.spec, made)
    assert isinstance(accepted, Accepted)
    assert accepted.engine.refused_parameters(service.spec, {Role.TARGET: "/t"}) == {
        "seed": "Made 9 (mode LLMAPI, with decodingType NGram) counts to three; count yourself"
    }
