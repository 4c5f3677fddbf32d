"""Goldens: a resource in tests/data/input becomes the children in a folder of tests/data/output, as `decide` applies
them from nothing to servers.

Update them with `make goldens`, and read the difference: once a renderer is released, its bytes are frozen.
"""

import json
from pathlib import Path

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from support import goldens
from support.services import DATA, QUICKSTART, parse
from tandem.api.types import SpeculativeInferenceService
from tandem.cli.manifests import ManifestError, accepted_all, read_text
from tandem.cli.render import Dumper, render_manifests
from tandem.render import LATEST, RENDERERS, Record, inputs_hash, render, v1
from tandem.render.rendered import Rendered
from tandem.settings import Settings

INPUTS = sorted((DATA / "input").glob("*.yaml"))


def render_text(text: str, settings: Settings) -> str:
    return render_manifests(accepted_all(text, settings), settings)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_golden(path: Path, settings: Settings) -> None:
    children = list(yaml.safe_load_all(render_text(path.read_text(encoding="utf-8"), settings)))
    goldens.check(DATA / "output" / path.stem, goldens.manifests(children))


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_configs_parse_as_tritons_own_protobuf(path: Path, settings: Settings) -> None:
    manifests = list(yaml.safe_load_all(render_text(path.read_text(encoding="utf-8"), settings)))
    (configmap,) = [m for m in manifests if m["kind"] == "ConfigMap"]
    models = json.loads(configmap["data"]["launch.json"])["models"]
    for name, model in models.items():
        config = model_config_pb2.ModelConfig()
        text_format.Parse(configmap["data"][model["config"]], config)
        assert config.name == name
        batches = not name.startswith("tensorrt_llm")  # LLMAPI: without
        assert config.max_batch_size > 0 or not batches
        ours = [each for each in ("rounds", "streams", "collector") if name.endswith(f"_{each}")]
        backend = ours[0] if ours else "python"
        assert (config.backend, config.platform) == (("", "ensemble") if name == "ensemble" else (backend, ""))


def record(service: SpeculativeInferenceService, settings: Settings) -> Record:
    profile = settings.profile("reference")
    assert profile is not None
    return Record(renderer=LATEST, serving_image=settings.serving_image, profile=profile, spec=service.spec)


def test_processors_are_no_devices_of_their_own_for_each_engine(settings: Settings) -> None:
    """Engines that draft and verify at once on the same processors take turns there."""
    made = render(record(parse(QUICKSTART, placement__strategy="Separate"), settings))
    (config,) = [text for name, text in made.files.items() if name.startswith("speculative_bls.")]
    (line,) = [line for line in config.splitlines() if "separate_devices" in line]
    assert 'string_value: "false"' in line


def test_a_revision_read_back_from_its_record_is_the_same_revision(settings: Settings) -> None:
    first = render(record(parse(QUICKSTART), settings))
    again = render(Record.model_validate_json(first.files["record.json"]))
    assert again == first


@pytest.mark.parametrize(("share", "written"), [(0.05, "0.05"), (0.0, None)])
def test_the_share_of_probes_reaches_the_bls(share: float, written: str | None, settings: Settings) -> None:
    service = parse(QUICKSTART, speculation__adaptive__probeShare=share)
    config = model_config_pb2.ModelConfig()
    text_format.Parse(render(record(service, settings)).files["speculative_bls.config.pbtxt"], config)
    found = config.parameters["probe_share"].string_value if "probe_share" in config.parameters else None
    assert found == written


LINE = ("queue_timeout_seconds", "max_running_sequences")


@pytest.mark.parametrize(
    ("serving", "bls", "unary", "reason"),
    [
        ({}, {"max_running_sequences": "16"}, {}, "all wait, in the BLS"),
        (
            {"queueTimeoutSeconds": 0.9, "maxBatchSize": 16},
            {"queue_timeout_seconds": "0.9", "max_running_sequences": "16"},
            {"queue_timeout_seconds": "0.9"},
            "who finds no place in the engines waits in the BLS",
        ),
        (
            {"queueTimeoutSeconds": 2, "maxBatchSize": 128},
            {"queue_timeout_seconds": "2.0", "max_running_sequences": "64"},
            {"queue_timeout_seconds": "2.0"},
            "the BLS itself has 64 places",
        ),
    ],
)
def test_the_time_in_line_reaches_the_models(
    serving: dict[str, float], bls: dict[str, str], unary: dict[str, str], reason: str, settings: Settings
) -> None:
    service = parse(QUICKSTART, **{f"serving__{name}": value for name, value in serving.items()})
    files = render(record(service, settings)).files
    for model, expected in (("speculative_bls", bls), ("tensorrt_llm_bls", unary)):
        config = text_format.Parse(files[f"{model}.config.pbtxt"], model_config_pb2.ModelConfig())
        found = {name: config.parameters[name].string_value for name in LINE if name in config.parameters}
        assert found == expected, reason


@pytest.mark.parametrize(
    ("strategy", "gpus", "batch", "places", "reason"),
    [
        ("Shared", True, 5, 5, "more would wait in the engines, where nobody can be refused"),
        ("Separate", True, 5, 10, "one half drafts while the other is verified"),
        ("Separate", True, 40, 64, "the BLS itself has 64 places"),
        ("Separate", False, 5, 5, "without GPUs both engines run on the same CPUs"),
    ],
)
def test_as_many_sequences_run_as_the_engines_take(
    strategy: str, gpus: bool, batch: int, places: int, reason: str, settings: Settings
) -> None:
    service = parse(QUICKSTART, placement={"strategy": strategy}, serving__maxBatchSize=batch)
    made = record(service, settings)
    made = made.model_copy(update={"profile": made.profile.model_copy(update={"gpus": gpus})})
    config = model_config_pb2.ModelConfig()
    text_format.Parse(render(made).files["speculative_bls.config.pbtxt"], config)
    assert config.parameters["max_running_sequences"].string_value == str(places), reason
    assert config.parameters["separate_devices"].string_value == str(strategy == "Separate" and gpus).lower()


@pytest.mark.parametrize("level", [None, 2])
def test_tritons_verbose_log(level: int | None, settings: Settings) -> None:
    revision = render(record(parse(QUICKSTART, serving__logVerbose=level), settings))
    command = json.loads(revision.files["launch.json"])["server"]["command"]
    assert [word for word in command if "log" in word] == (["--log-verbose=2"] if level else [])


@pytest.mark.parametrize(
    ("change", "same", "reason"),
    [
        ({"replicas": 5}, True, "replicas are no part of a revision"),
        ({"rollout": {"strategy": "Replace"}}, True, "how revisions take each other's place is no part of them"),
        ({"rollout": {"progressDeadlineSeconds": 60}}, True, "a server still may take an hour to start"),
        ({"rollout": {"progressDeadlineSeconds": 7500}}, False, "a server may take longer to start"),
        ({"autoscaling": {"maxReplicas": 5}}, True, "nor is who decides them"),
        ({"speculation__minAcceptedLength": 2}, True, "nor what speculation must be worth"),
        ({"placement": {}}, True, "a default written out changes nothing"),
        ({"speculation__maxDraftLen": 5}, False, "draft length is configuration"),
        ({"runtime__image": "other:1"}, False, "another image is another revision"),
        ({"placement": {"nodeSelector": {"a": "b"}}}, False, "pods must move"),
        ({"target__model__uri": "file:///other"}, False, "another target"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_a_revision(change: dict[str, object], same: bool, reason: str, settings: Settings) -> None:
    base, other = parse(QUICKSTART), parse(QUICKSTART, **change)
    digests = [render(record(service, settings)).digest for service in (base, other)]
    assert (digests[0] == digests[1]) is same, reason
    assert (inputs_hash(base.spec) == inputs_hash(other.spec)) is same, reason


MOUNTED = [
    ({"target__model__uri": "pvc://models/a"}, {"target__model__uri": "pvc://models/b"}, "another path of a claim"),
    ({"target__model__uri": "pvc://one/a"}, {"target__model__uri": "pvc://two/a"}, "another claim"),
    ({"draft__model__uri": "oci://models:1"}, {"draft__model__uri": "oci://models:2"}, "another image"),
    ({}, {"target__model__tokenizer": {"uri": "file:///tokenizer"}}, "another tokenizer"),
]


@pytest.mark.parametrize(("first", "second", "reason"), MOUNTED, ids=[row[2] for row in MOUNTED])
def test_another_model_at_the_same_place_is_checked_anew(
    first: dict[str, object], second: dict[str, object], reason: str, settings: Settings
) -> None:
    checks = [render(record(parse(QUICKSTART, **change), settings)).preflight.digest for change in (first, second)]
    assert checks[0] != checks[1], reason


def test_every_model_that_makes_tokens_is_told_the_tokenizer(settings: Settings) -> None:
    service = parse(QUICKSTART, target__model__tokenizer={"uri": "file:///tokenizer"})
    revision = render(record(service, settings))
    told = {}
    for name, text in revision.files.items():
        if name.endswith(".pbtxt"):
            config = text_format.Parse(text, model_config_pb2.ModelConfig())
            if "tokenizer_dir" in config.parameters:
                told[config.name] = config.parameters["tokenizer_dir"].string_value
    assert told == dict.fromkeys(("preprocessing", "postprocessing", "speculative_bls"), "/tokenizer")
    assert json.loads(revision.files["launch.json"])["preflight"]["target"] == {
        "path": "/opt/reference/pair/target",
        "tokenizer": "/tokenizer",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("kind: Deployment", "no SpeculativeInferenceService"),
        ("[1, 2]", "no SpeculativeInferenceService"),
        (QUICKSTART.replace("mode: BLS", "mode: Fast"), "runtime.mode"),
        (QUICKSTART.replace("profile: reference", "profile: nope"), "UnknownProfile"),
    ],
)
def test_what_cannot_be_rendered_says_why(text: str, message: str, settings: Settings) -> None:
    with pytest.raises(ManifestError, match=message):
        render_text(text, settings)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read .*: No such file"), (b"a\xff", "not UTF-8 text: invalid start byte at byte 1")],
    ids=["no such file", "not text"],
)
def test_a_file_that_cannot_be_read_is_one_message(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "service.yaml").write_bytes(content)
    with pytest.raises(ManifestError, match=message):
        read_text(tmp_path / "service.yaml")


@pytest.mark.parametrize("digest", ["0123456789", "1234567890", "12e3456789", "1234e56789"])
def test_a_digest_that_looks_like_a_number_is_quoted(digest: str) -> None:
    """PyYAML itself reads all but the second as strings; kubectl, as YAML 1.2 says, as numbers."""
    text = yaml.dump({"label": digest, "name": f"svc-{digest}"}, Dumper=Dumper)
    assert text.splitlines() == [f"label: '{digest}'", f"name: svc-{digest}"]


def test_a_revision_is_kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes most of a reconcile's time; `unit.rollout.test_known` sees that nobody changes it."""
    profile = settings.profile("reference")
    assert profile
    record = Record(renderer=LATEST, serving_image="kept", profile=profile, spec=parse(QUICKSTART).spec)
    renderings: list[object] = []

    def counted(record: Record) -> Rendered:
        renderings.append(record)
        return v1.render(record)

    monkeypatch.setitem(RENDERERS, LATEST, counted)
    assert render(record.model_copy()) is render(record)
    assert len(renderings) == 1
    assert render(record.model_copy(update={"serving_image": "other"})) != render(record)
    assert len(renderings) == 2
