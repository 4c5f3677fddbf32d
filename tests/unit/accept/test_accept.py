"""Specs that need the operator's settings to judge, and the settings themselves."""

from pathlib import Path

import pytest
import yaml

from support import images
from support.services import QUICKSTART, parse
from tandem.accept import Accepted, Refusal, accept
from tandem.api.conditions import SpecReason
from tandem.api.profile import EngineSettings
from tandem.engines import engine_of
from tandem.errors import SettingsError
from tandem.settings import KedaSettings, Settings, check_images, in_cluster, load_settings, parse_settings

ROWS = [
    (
        {"runtime__profile": "nope"},
        "UnknownProfile",
        "runtime.profile 'nope' is not in the operator's settings: write one of: reference, torch, trtllm-1.3,"
        " trtllm-1.4rc, trtllm-26.07, vllm-26.08, vllm-cpu; or add it to the Helm value `profiles`",
    ),
    (
        {"runtime__profile": "trtllm-1.3"},
        "ModeNotInProfile",
        "profile 'trtllm-1.3' cannot run mode BLS (Tandem builds TensorRT engines with TensorRT-LLM 1.2, and 1.3 is"
        " written): write runtime.mode: LLMAPI, or another profile",
    ),
    (
        {"target__tensorParallelSize": 2},
        "TensorParallelNotInProfile",
        "target.tensorParallelSize is 2, and profile 'reference' runs a model on at most 1: write a smaller one, or"
        " another profile",
    ),
    (
        {"draft__tensorParallelSize": 2},
        "TensorParallelNotInProfile",
        "draft.tensorParallelSize is 2, and profile 'reference' runs a model on at most 1: write a smaller one, or"
        " another profile",
    ),
    (
        {"runtime__mode": "LLMAPI", "draft": None, "speculation": {"decodingType": "MTP"}},
        "DecodingTypeNotInProfile",
        "profile 'reference' cannot run decodingType MTP in mode LLMAPI: write speculation.decodingType: DraftTarget"
        " or NGram or None, or another profile",
    ),
    (
        {"runtime__profile": "trtllm-26.07", "draft": None, "speculation": {"decodingType": "Medusa"}},
        "MedusaWithoutTree",
        "decodingType Medusa needs a tree on TensorRT engines: write speculation.medusa.choices",
    ),
]


@pytest.mark.parametrize(("change", "reason", "message"), ROWS, ids=[f"{row[1]} {row[0]}" for row in ROWS])
def test_refused(change: dict[str, object], reason: str, message: str, settings: Settings) -> None:
    refusal = accept(parse(QUICKSTART, **change).spec, settings)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.message) == (reason, message)


def keda(*triggers: dict[str, object]) -> dict[str, object]:
    return {"maxReplicas": 2, "source": "KEDA", "keda": {"triggers": list(triggers)}}


OWN: dict[str, object] = {"type": "cron", "authenticationRef": {"name": "mine", "kind": "TriggerAuthentication"}}
THEIRS: dict[str, object] = {
    "type": "metrics-api",
    "metadata": {"url": "http://mine", "authMode": "basic"},
    "authenticationRef": {"name": "tandem-metrics-prometheus", "kind": "ClusterTriggerAuthentication"},
}


@pytest.mark.parametrize(
    ("triggers", "refused"),
    [
        ([OWN], None),
        ([{"type": "cron", "authenticationRef": {"name": "mine"}}], None),
        ([{"type": "cron", "authenticationRef": "mine"}], None),
        ([OWN, THEIRS], "triggers[1].authenticationRef is a ClusterTriggerAuthentication"),
    ],
    ids=["the namespace's", "by KEDA's default", "not of its form: the API server's to refuse", "of all namespaces"],
)
def test_credentials_of_a_trigger(triggers: list[dict[str, object]], refused: str | None, settings: Settings) -> None:
    found = accept(parse(QUICKSTART, autoscaling=keda(*triggers)).spec, settings)
    assert isinstance(found, Refusal) is (refused is not None)
    if isinstance(found, Refusal):
        assert found.reason == "ClusterTriggerAuthenticationRefused"
        assert f"autoscaling.keda.{refused}" in found.message


AWS = {"queueURL": "https://sqs.eu-west-1.amazonaws.com/1/q", "awsRegion": "eu-west-1"}
TRIGGERS: list[tuple[str, dict[str, object], list[str], str]] = [
    # why, trigger, the administrator's list, the reason of the refusal
    ("reads a Prometheus", {"type": "prometheus", "metadata": {"serverAddress": "http://p"}}, [], ""),
    ("credentials of its own", {"type": "aws-sqs-queue", "metadata": AWS}, [], ""),
    ("the pod's identity", {"type": "aws-sqs-queue", "metadata": {**AWS, "identityOwner": "pod"}}, [], ""),
    (
        "KEDA's own identity",
        {"type": "aws-sqs-queue", "metadata": {**AWS, "identityOwner": "operator"}},
        [],
        "TriggerIdentityRefused",
    ),
    (
        "by a scaler that signs for AWS",
        {"type": "prometheus", "metadata": {"identityOwner": "operator"}},
        [],
        "TriggerIdentityRefused",
    ),
    (
        "in another spelling, should a KEDA take it",
        {"type": "prometheus", "metadata": {"IdentityOwner": "Operator"}},
        ["prometheus", "cron"],
        "TriggerIdentityRefused",
    ),
    ("what its server does is not known", {"type": "external"}, [], "TriggerTypeRefused"),
    ("nor of one that pushes", {"type": "external-push"}, [], "TriggerTypeRefused"),
    ("of a KEDA to come", {"type": "kubernetes-secrets"}, [], "TriggerTypeRefused"),
    ("no type at all", {"metadata": {}}, [], "TriggerTypeRefused"),
    ("a type of another form", {"type": ["cron"]}, [], "TriggerTypeRefused"),
    ("the administrator allows more", {"type": "external"}, ["external", "cron"], ""),
    ("and less", {"type": "prometheus"}, ["external", "cron"], "TriggerTypeRefused"),
]


@pytest.mark.parametrize(("trigger", "allowed", "reason"), [t[1:] for t in TRIGGERS], ids=[t[0] for t in TRIGGERS])
def test_which_triggers_are_passed_to_keda(trigger: dict[str, object], allowed: list[str], reason: str) -> None:
    settings = load_settings().model_copy(update={"keda": KedaSettings(allowed_triggers=allowed)})
    found = accept(parse(QUICKSTART, autoscaling=keda(OWN, trigger)).spec, settings)
    if not reason:
        assert not isinstance(found, Refusal)
        return
    assert isinstance(found, Refusal)
    assert found.reason == reason
    assert "autoscaling.keda.triggers[1]" in found.message
    assert not allowed or reason == "TriggerIdentityRefused" or "write one of: cron, external;" in found.message


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"nodeAffinity.{REQUIRED}.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ("zone-a", "nodeAffinity"),
        ({REQUIRED: []}, f"nodeAffinity.{REQUIRED}"),
        ({REQUIRED: {"nodeSelectorTerms": "zone-a"}}, TERMS),
        ({REQUIRED: {"nodeSelectorTerms": [None]}}, f"{TERMS}.0"),
        ({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": ["zone-a"]}]}}, f"{TERMS}.0.matchExpressions.0"),
    ],
)
def test_an_affinity_that_is_none_is_refused(node: object, path: str, settings: Settings) -> None:
    found = accept(parse(QUICKSTART, placement={"affinity": {"nodeAffinity": node}}).spec, settings)
    assert isinstance(found, Refusal)
    assert found.reason == "AffinityMalformed"
    assert found.message.startswith(f"placement.affinity.{path} is not of the form that a PodSpec has: ")


@pytest.mark.parametrize(("strategy", "warned"), [("Surge", False), ("Replace", True)])
def test_downtime_is_warned_of(strategy: str, warned: bool, settings: Settings) -> None:
    accepted = accept(parse(QUICKSTART, rollout={"strategy": strategy}).spec, settings)
    text = (
        "rollout.strategy Replace stops the old servers before new ones start: each change of the revision has"
        " downtime until the new ones answer"
    )
    assert isinstance(accepted, Accepted)
    assert accepted.warnings == ((text,) if warned else ())


def test_accepted(settings: Settings) -> None:
    profile = settings.profile("reference")
    assert profile is not None
    spec = parse(QUICKSTART).spec
    assert accept(spec, settings) == Accepted(engine_of(spec, profile))


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_profile_of_the_file_is_merged_over_the_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path, "profiles: [{name: reference, image: own/reference:1}]")
    profile = load_settings(path).profile("reference")
    shipped = load_settings().profile("reference")
    assert profile is not None
    assert shipped is not None
    assert profile == shipped.model_copy(update={"image": "own/reference:1"})


MERGED = [
    # the engine that is written, that of the profile, why
    ("{calls: Single}", {"kind": "TensorRT-LLM", "version": "1.2.1", "calls": "Single"}, "only what differs"),
    ("{kind: TensorRT-LLM, version: 1.2.2}", {"kind": "TensorRT-LLM", "version": "1.2.2"}, "another version"),
    ("{kind: Tandem}", {"kind": "Tandem"}, "another engine has nothing of the shipped one"),
]


@pytest.mark.parametrize(("engine", "wanted", "why"), MERGED, ids=[row[-1] for row in MERGED])
def test_the_engine_of_a_shipped_profile_is_merged_too(
    engine: str, wanted: dict[str, str], why: str, tmp_path: Path
) -> None:
    path = write(tmp_path, f"profiles: [{{name: trtllm-26.07, engine: {engine}}}]")
    profile = load_settings(path).profile("trtllm-26.07")
    assert profile
    assert profile.engine == EngineSettings.model_validate(wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot read settings"),
        ("- 1", "expected a mapping"),
        ("workres: 3", "workres: Extra inputs"),
        ("workers: 0", "workers: Input should be greater"),
        ("profiles: [{name: own}]", "profiles.7.engine: Field required"),
        ("profiles: [3]", "profiles.7"),
        ("profiles: [{name: [a]}]", "profiles.7.name: Input should be a valid string"),
        ("profiles: 5", "profiles: Input should be a valid list"),
        ("profiles: {name: own}", "profiles: Input should be a valid list"),
        ("lease: {renewSeconds: 6}", "above a third of durationSeconds 15"),
        ("reports: {url: 'http://tandem-metrics.tandem-system.svc'}", "in clear text: write https://"),
        ("keda: {prometheus: {authModes: [bearer]}}", "authentication and authModes go together"),
        (
            "keda: {prometheus: {authentication: a, authModes: [bearer, basic]}}",
            "must not have both basic and bearer",
        ),
    ],
)
def test_wrong_settings_say_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(write(tmp_path, text))


@pytest.mark.parametrize("host", ["127.0.0.1:8", "[::1]:8", "localhost"])
def test_reports_of_this_machine_may_come_in_clear_text(host: str, tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, f"reports: {{url: 'http://{host}'}}")).reports.url == f"http://{host}"


@pytest.mark.parametrize(
    ("named", "missing"),
    [({}, "servingImage, fetcherImage"), ({"servingImage": "r.example/s"}, "fetcherImage")],
    ids=["none", "one"],
)
def test_an_operator_needs_images_of_a_registry(named: dict[str, str], missing: str) -> None:
    with pytest.raises(SettingsError, match=f"^settings: {missing}: not set, and no public registry has Tandem's"):
        check_images(parse_settings(yaml.safe_dump(named), "test"))
    check_images(parse_settings(yaml.safe_dump(images.SETTINGS), "test"))


def test_a_profile_whose_image_nobody_named_is_refused_by_an_operator() -> None:
    settings = in_cluster(parse_settings(yaml.safe_dump({**images.SETTINGS, "profiles": []}), "test"))
    refusal = accept(parse(QUICKSTART).spec, settings)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == SpecReason.NO_IMAGE
    assert refusal.message.endswith(" in the Helm value `profiles`, as - {name: reference, image: ...}")
    own = parse(QUICKSTART, runtime__image="own:1").spec
    named = in_cluster(parse_settings(yaml.safe_dump(images.SETTINGS), "test"))
    assert isinstance(accept(own, settings), Accepted)
    assert isinstance(accept(parse(QUICKSTART).spec, named), Accepted)


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.yaml", "none.yaml: No such file"), (tmp_path, "Is a directory$")):
        with pytest.raises(SettingsError, match=f"^cannot read settings .*{message}"):
            load_settings(path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(SettingsError, match=r"latin\.yaml are not UTF-8 text: invalid start byte at byte 3"):
        load_settings(tmp_path / "latin.yaml")
