"""`tandem validate` and `tandem render` on files: what they print where, and their exit codes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import V1Container, V1PodSpec
from typer.testing import CliRunner

from tandem.api.crd import root_schema
from tandem.api.types.placement import ContainerTemplate, InitContainerTemplate, TemplateSpec
from tandem.cli import app, not_allowed
from tandem.cli.admission import schema_of
from tandem.cli.schema_faults import PATTERNS

EAGLE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: eagle}
spec:
  runtime: {mode: LLMAPI, profile: trtllm-26.07}
  target: {model: {uri: hf://meta-llama/Llama-3.1-8B-Instruct}, tensorParallelSize: 2}
  draft: {model: {uri: hf://yuhuili/EAGLE3-LLaMA3.1-Instruct-8B}}
  speculation: {decodingType: Eagle3, maxDraftLen: 3}
"""
DRAFT = "  draft: {model: {uri: hf://yuhuili/EAGLE3-LLaMA3.1-Instruct-8B}}\n"
ACCEPTED = "eagle: accepted, profile trtllm-26.07 (not verified: Tandem's tests never ran it on its hardware)\n"
LORA = EAGLE.replace("26.07}", "26.07, extraLlmArgs: {lora_config: {}, enable_lora: true}}")


def run(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, and standard error without the file's folder."""
    (tmp_path / "service.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, [*arguments, "-f", str(tmp_path / "service.yaml")])
    return result.exit_code, result.stdout, result.stderr.replace(f"{tmp_path}/", "")


# name: (the file, its standard error): each is refused by another part of what the cluster does
REFUSED = {
    "CEL": (
        EAGLE.replace(DRAFT, ""),
        "service.yaml:5: eagle: spec: this decodingType needs a draft model: write spec.draft.model.uri, or"
        " speculation.decodingType: None to serve the target alone\n",
    ),
    "CEL of a part": (
        EAGLE.replace("hf://meta-llama/Llama-3.1-8B-Instruct", "hf://a/../b"),
        "service.yaml:7: eagle: spec.target.model: uri must be hf://ORG/NAME, s3://BUCKET/PATH, gs://BUCKET/PATH,"
        " pvc://CLAIM/PATH, oci://IMAGE or file:///PATH/IN/THE/IMAGE (letters, digits, '.', '_', '-' and '/'; in"
        " paths of buckets, claims and repositories also = + @ : , ~ ( ) ! & and spaces between)\n"
        "service.yaml:7: eagle: spec.target.model: uri must not contain '..' or '.' as a part of its path: write the"
        " model's path without it\n",
    ),
    "unknown field": (
        EAGLE.replace("maxDraftLen", "maxDraftLenght"),
        "service.yaml:9: eagle: spec.speculation.maxDraftLenght: unknown field: did you mean maxDraftLen?\n",
    ),
    "fields of pods that are left out on purpose": (
        f"{EAGLE}  podTemplate:\n    spec:\n      hostNetwork: true\n      tolerations: []\n"
        "      containers: [{name: triton, startupProbe: {}}]\n",
        "service.yaml:12: eagle: spec.podTemplate.spec.hostNetwork: not allowed: pods share nothing with their node,"
        " as Pod Security `restricted` has it: remove it\n"
        "service.yaml:13: eagle: spec.podTemplate.spec.tolerations: not allowed: write spec.placement.tolerations\n"
        "service.yaml:14: eagle: spec.podTemplate.spec.containers[0].startupProbe: not allowed: Tandem sets the"
        " probes, which ask the models: remove it\n",
    ),
    "the profile": (
        EAGLE.replace("tensorParallelSize: 2", "tensorParallelSize: 2, pipelineParallelSize: 2"),
        "service.yaml:7: eagle: PipelineParallelWithSpeculation: target.pipelineParallelSize is 2, and TensorRT-LLM"
        " 1.2.1 does not speculate over pipeline stages: write pipelineParallelSize: 1 and a larger"
        " tensorParallelSize, or speculation.decodingType: None\n",
    ),
    "the version": (
        EAGLE.replace("v1alpha1", "v1"),
        "service.yaml:2: eagle: apiVersion: write serving.tandem.dev/v1alpha1\n",
    ),
    "no version": (
        EAGLE.replace("apiVersion: serving.tandem.dev/v1alpha1", ""),
        "service.yaml:3: eagle: apiVersion: write serving.tandem.dev/v1alpha1\n",
    ),
    "no YAML": (
        "# text\na: [\n",
        "service.yaml:3: not YAML: while parsing a flow node: expected the node content, but found '<stream end>'\n",
    ),
    "a field twice": (
        EAGLE.replace("  draft:", "  target: {}\n  draft:"),
        "service.yaml:8: 'target' is written twice: keep one\n",
    ),
    "no service": ("kind: Deployment", "service.yaml:1: no SpeculativeInferenceService in the file\n"),
}

ALL_AT_ONCE = """# of a template
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: one}
spec:
  runtime:
    profile: trtllm-26.07
  target:
    model: {uri: hf://a/b, secretName: My_Secret}
    tensorParallelSize: "2"
  speculation:
    decodingType: Eagle4
    maxDraftLen: 99
    maxDraftLn: 3
---
a: [
--- # a list, as kubectl get prints it
apiVersion: v1
kind: List
items:
- apiVersion: serving.tandem.dev/v1alpha1
  kind: SpeculativeInferenceService
  metadata: {name: two}
  spec:
    runtime: {mode: LLMAPI, profile: trtllm-26.07, extraLlmArgs: {max_beam_width: 4}}
    target: {model: {uri: hf://a/b}, pipelineParallelSize: 2}
    speculation: {decodingType: NGram}
"""
FAULTS = [
    "service.yaml:6: one: spec.runtime.mode: missing: write LLMAPI or BLS",
    'service.yaml:9: one: spec.target.model.secretName: "My_Secret" is not allowed: write a name of lower-case'
    " letters, digits, '-' and '.', such as my-secret",
    'service.yaml:10: one: spec.target.tensorParallelSize: "2" is not allowed: write a whole number from 1 to 64,'
    " without quotes",
    'service.yaml:12: one: spec.speculation.decodingType: "Eagle4" is not allowed: did you mean Eagle or Eagle3?',
    "service.yaml:13: one: spec.speculation.maxDraftLen: 99 is not allowed: write a whole number from 1 to 32",
    "service.yaml:14: one: spec.speculation.maxDraftLn: unknown field: did you mean maxDraftLen?",
    "service.yaml:17: not YAML: while parsing a flow node: expected the node content, but found '<stream end>'",
    "service.yaml:25: two: FeatureWithSpeculation: runtime.extraLlmArgs.max_beam_width is 4, which TensorRT-LLM"
    " 1.2.1 cannot combine with speculation: remove it, or write speculation.decodingType: None",
    "service.yaml:26: two: PipelineParallelWithSpeculation: target.pipelineParallelSize is 2, and TensorRT-LLM"
    " 1.2.1 does not speculate over pipeline stages: write pipelineParallelSize: 1 and a larger tensorParallelSize,"
    " or speculation.decodingType: None",
]


@pytest.mark.parametrize("command", ["validate", "render"])
def test_all_faults_at_once(command: str, tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, ALL_AT_ONCE, command)
    assert (code, stdout) == (1, "")
    assert stderr.removeprefix("error: ").splitlines() == FAULTS


def test_every_file_is_judged(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.yaml" for name in ("a", "b", "c")]
    for file, text in zip(files, (EAGLE.replace("maxDraftLen: 3", "maxDraftLen: 0"), EAGLE, LORA), strict=True):
        file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["validate", *(word for file in files for word in ("-f", str(file)))])
    assert result.exit_code == 1
    assert result.stdout == ACCEPTED * 2
    assert result.stderr.startswith(
        f"{files[0]}:9: eagle: spec.speculation.maxDraftLen: 0 is not allowed: write a whole number from 1 to 32\n"
    )
    rendered = CliRunner().invoke(app, ["render", "-f", str(files[1]), "-f", str(files[2])])
    assert [each["kind"] for each in yaml.safe_load_all(rendered.stdout)].count("Deployment") == 2


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(EAGLE, encoding="utf-8")
    result = CliRunner().invoke(app, ["validate", "-f", str(tmp_path / "a.yaml"), "-f", str(tmp_path / "b.yaml")])
    assert (result.exit_code, result.stdout) == (1, ACCEPTED)
    assert f"cannot read {tmp_path}/a.yaml: No such file or directory\n" in result.stderr


SCHEMA: list[tuple[str, str, str]] = [
    # what is written, instead of it, the message
    ("maxDraftLen: 3", "maxDraftLen: 3.5", "maxDraftLen: 3.5 is not allowed: write a whole number from 1 to 32"),
    (
        "tensorParallelSize: 2",
        "tensorParallelSize: 0",
        "tensorParallelSize: 0 is not allowed: write a whole number from",
    ),
    ("mode: LLMAPI", "mode: llmapi", 'spec.runtime.mode: "llmapi" is not allowed: did you mean LLMAPI?'),
    ("mode: LLMAPI, ", "", "spec.runtime.mode: missing: write LLMAPI or BLS"),
    (
        "profile: trtllm-26.07",
        "profile: 26.07",
        "26.07 is not allowed: write a text of 1 to 63 characters (put it in quotes)",
    ),
    ("profile: trtllm-26.07", "profile: ''", '"" is not allowed: write a text of 1 to 63 characters'),
    (
        "{uri: hf://meta-llama/Llama-3.1-8B-Instruct}",
        "{}",
        "spec.target.model.uri: missing: write a text of 1 to 1024",
    ),
    (
        "{uri: hf://meta-llama/Llama-3.1-8B-Instruct}",
        "hf://a/b",
        'spec.target.model: "hf://a/b" is not allowed: write a mapping with uri',
    ),
    ("8B-Instruct}", "8B-Instruct, revision: 'a b'}", '"a b" is not allowed: write a branch, tag or commit'),
    ("maxDraftLen: 3", "adaptive: {enabled: 'yes'}", '"yes" is not allowed: write true or false, without quotes'),
    ("maxDraftLen: 3", "draftLenSchedule: []", "draftLenSchedule: [] is not allowed: write a list of 1 to"),
    ("spec:", "spec: {}\nspec_:", "spec.runtime: missing: write a mapping with mode and profile"),
    ("  runtime", "  replicas: -1\n  runtime", "spec.replicas: -1 is not allowed: write a whole number from 0 to"),
    ("  runtime", "  storage: {cache: {size: 5 GB}}\n  runtime", "write a size such as 500Gi"),
]


@pytest.mark.parametrize(("old", "new", "message"), SCHEMA, ids=[row[1] or "nothing" for row in SCHEMA])
def test_messages_of_the_schema_say_what_to_write(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in EAGLE
    code, _, stderr = run(tmp_path, EAGLE.replace(old, new, 1), "validate")
    assert code == 1
    assert message in stderr
    assert "Input should" not in stderr


def patterns(schema: dict[str, Any]) -> Iterator[str]:
    """Patterns of all texts of a schema."""
    yield from [schema["pattern"]] if "pattern" in schema else []
    below = [schema.get("items"), schema.get("additionalProperties"), *schema.get("properties", {}).values()]
    for child in below:
        yield from patterns(child) if isinstance(child, dict) else ()


def test_every_pattern_has_words() -> None:
    assert set(patterns(root_schema()["properties"]["spec"])) == PATTERNS.keys()


@pytest.mark.parametrize("metadata", ["", "eagle", "{}", "{generateName: eagle-}", "{name: 7}", "{name: }"])
def test_a_service_without_a_name_is_said_to_have_none(metadata: str, tmp_path: Path) -> None:
    text = EAGLE.replace("{name: eagle}", metadata)
    said = "service.yaml:4: a SpeculativeInferenceService has no metadata.name that is a text: write one\n"
    assert run(tmp_path, text, "validate") == (1, "", said)


@pytest.mark.parametrize(("text", "stderr"), REFUSED.values(), ids=REFUSED)
def test_validate_refuses(text: str, stderr: str, tmp_path: Path) -> None:
    assert run(tmp_path, text, "validate") == (1, "", stderr)


def test_validate_judges_every_service_of_the_file(tmp_path: Path) -> None:
    bad = EAGLE.replace(DRAFT, "").replace("name: eagle", "name: bad")
    code, stdout, stderr = run(tmp_path, f"{bad}---\n{LORA}", "validate")
    assert (code, stdout) == (1, ACCEPTED)
    assert stderr.splitlines()[0].startswith("service.yaml:5: bad: spec: this decodingType needs a draft model")
    assert stderr.splitlines()[1] == (
        "warning: eagle: LoRA with speculation: TensorRT-LLM 1.2 does not support it yet, and fails in its attention"
        " or is wrong (https://github.com/NVIDIA/TensorRT-LLM/pull/12661): compare outputs first, or write a profile"
        " with TensorRT-LLM 1.3"
    )


def test_validate_accepts(tmp_path: Path) -> None:
    assert run(tmp_path, EAGLE, "validate") == (0, ACCEPTED, "")


def test_validate_names_an_old_triton(tmp_path: Path) -> None:
    """Of the image that the service names itself."""
    text = EAGLE.replace("26.07}", "26.07, image: 'nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3'}")
    code, stdout, stderr = run(tmp_path, text, "validate")
    assert (code, stdout) == (0, ACCEPTED)
    assert (
        "warning: eagle: runtime.image nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3 has Triton 26.04" in stderr
    )


def test_what_is_null_is_absent(tmp_path: Path) -> None:
    # As templates leave it: nothing stands behind these keys.
    text = f"{EAGLE}  placement:\n  replicas:\n  autoscaling:\n  podTemplate: {{spec: {{containers: }}}}\n"
    assert run(tmp_path, text, "validate") == (0, ACCEPTED, "")


def test_validate_takes_what_kubectl_get_prints(tmp_path: Path) -> None:
    live = yaml.safe_load(EAGLE)
    live["metadata"] |= {"namespace": "a", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
    live["status"] = {"observedGeneration": 3, "replicas": 1}
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [live, live]})
    assert run(tmp_path, listed, "validate") == (0, ACCEPTED * 2, "")


def test_render_warns_beside_the_manifests(tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, LORA, "render")
    assert code == 0
    assert stderr.startswith("warning: eagle: LoRA with speculation")
    assert "Deployment" in [manifest["kind"] for manifest in yaml.safe_load_all(stdout)]


@pytest.mark.parametrize("command", ["render", "validate"])
def test_what_the_api_server_refuses_is_not_rendered(command: str, tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, EAGLE.replace(DRAFT, ""), command)
    assert (code, stdout) == (1, "")
    assert "this decodingType needs a draft model" in stderr


def test_trtllm_config(tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, EAGLE, "render", "--trtllm-config")
    assert code == 0
    model = "meta-llama/Llama-3.1-8B-Instruct"
    assert stderr == (
        f"serve it with: trtllm-serve serve {model} --config FILE\n"
        f"measure it with: trtllm-bench --model {model} throughput --dataset DATASET --config FILE\n"
    )
    assert stdout.splitlines() == [
        "tensor_parallel_size: 2",
        "pipeline_parallel_size: 1",
        "max_batch_size: 16",
        "speculative_config:",
        "  decoding_type: Eagle",
        "  max_draft_len: 3",
        "  speculative_model_dir: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "  allow_advanced_sampling: true",
    ]


def test_trtllm_config_keeps_revisions(tmp_path: Path) -> None:
    """Of the draft the LLM API takes none, so it is fetched first."""
    raw = yaml.safe_load(EAGLE)
    raw["spec"]["target"]["model"]["revision"] = "0123abc"
    raw["spec"]["draft"]["model"]["revision"] = "refs/pr/7"
    code, stdout, stderr = run(tmp_path, yaml.safe_dump(raw), "render", "--trtllm-config")
    model, heads = "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    folder = "yuhuili-EAGLE3-LLaMA3.1-Instruct-8B-refs-pr-7"
    assert code == 0
    of = f"{model} --revision 0123abc"
    assert stderr.splitlines() == [
        f"download first: hf download {heads} --revision refs/pr/7 --local-dir {folder}",
        f"serve it with: trtllm-serve serve {of} --config FILE",
        f"measure it with: trtllm-bench --model {of} throughput --dataset DATASET --config FILE",
    ]
    assert yaml.safe_load(stdout)["speculative_config"]["speculative_model_dir"] == folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            EAGLE.replace("LLMAPI", "BLS").replace("Eagle3", "DraftTarget"),
            "error: eagle: trtllm-serve and trtllm-bench run TensorRT-LLM's LLM API: write runtime.mode: LLMAPI"
            " and a profile with TensorRT-LLM\n",
        ),
        (
            EAGLE.replace(DRAFT, "").replace(
                "{decodingType: Eagle3,", "{decodingType: UserProvided, userProvided: {entryPoint: 'a:b'},"
            ),
            "error: eagle: the drafter of decodingType UserProvided is Python, not configuration\n",
        ),
        (f"{EAGLE}---\n{EAGLE}", "error: --trtllm-config is for one service, and the file has 2\n"),
    ],
    ids=["mode BLS", "UserProvided", "two services"],
)
def test_what_has_no_trtllm_config(text: str, message: str, tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, text, "render", "--trtllm-config")
    assert (code, stdout) == (1, "")
    assert stderr.endswith(message)


PODS: list[tuple[type[Any], type[Any], Mapping[str, str]]] = [
    # Kubernetes' type, what of it the resource has, what it leaves out
    (V1PodSpec, TemplateSpec, not_allowed.POD),
    (V1Container, ContainerTemplate, not_allowed.CONTAINER),
    (V1Container, InitContainerTemplate, not_allowed.INIT_CONTAINER),
]


@pytest.mark.parametrize(("kubernetes", "ours", "left_out"), PODS, ids=[row[1].__name__ for row in PODS])
def test_no_field_of_a_pod_is_called_misspelt(
    kubernetes: type[Any], ours: type[Any], left_out: Mapping[str, str]
) -> None:
    """With a newer client of Kubernetes' a field may be new: it gets a row, or a field of the resource."""
    has = {field.alias or name for name, field in ours.model_fields.items()}
    assert set(kubernetes.attribute_map.values()) == has | left_out.keys()
    assert not has & left_out.keys()


def test_fields_that_messages_name_exist() -> None:
    texts = [text for _, _, rows in PODS for text in rows.values()] + [*not_allowed.JOBS.values()]
    for name in {name for text in texts for name in re.findall(r"spec(?:\.\w+)+", text)}:
        assert schema_of(name.split(".")), name
