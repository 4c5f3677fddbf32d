"""`tandem validate` and `tandem render` on files: what they print where, and their exit codes."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tandem.cli import app

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
UNVERIFIED = (
    "warning: eagle: profile 'trtllm-26.07' is not verified: Tandem's tests never ran it on its hardware; try your"
    " models on it before you rely on it\n"
)
LORA = EAGLE.replace("26.07}", "26.07, extraLlmArgs: {lora_config: {}, enable_lora: true}}")


def run(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    (tmp_path / "service.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, [*arguments, "-f", str(tmp_path / "service.yaml")])
    return result.exit_code, result.stdout, result.stderr


# name: (the file, its standard error): each is refused by another part of what the cluster does
REFUSED = {
    "CEL": (
        EAGLE.replace(DRAFT, ""),
        "eagle: spec: this decodingType needs a draft model: write spec.draft.model.uri, or speculation.decodingType:"
        " None to serve the target alone\n",
    ),
    "CEL of a part": (
        EAGLE.replace("hf://meta-llama/Llama-3.1-8B-Instruct", "hf://a/../b"),
        "eagle: spec.target.model: uri must be hf://ORG/NAME, s3://BUCKET/PATH, gs://BUCKET/PATH, pvc://CLAIM/PATH,"
        " oci://IMAGE or file:///PATH/IN/THE/IMAGE (letters, digits, '.', '_', '-' and '/')\n"
        "eagle: spec.target.model: uri must not contain '..': write the model's path without it\n",
    ),
    "unknown field": (
        EAGLE.replace("maxDraftLen", "maxDraftLenght"),
        "eagle: spec.speculation.maxDraftLenght: unknown field: check its spelling, or remove it\n",
    ),
    "the profile": (
        EAGLE.replace("tensorParallelSize: 2", "tensorParallelSize: 2, pipelineParallelSize: 2"),
        "eagle: PipelineParallelWithSpeculation: target.pipelineParallelSize is 2, and TensorRT-LLM's LLM API does"
        " not speculate over pipeline stages: write pipelineParallelSize: 1 and a larger tensorParallelSize, or"
        " speculation.decodingType: None\n",
    ),
    "the version": (
        EAGLE.replace("v1alpha1", "v1"),
        "eagle: apiVersion: write serving.tandem.dev/v1alpha1\n",
    ),
    "no version": (
        EAGLE.replace("apiVersion: serving.tandem.dev/v1alpha1", ""),
        "eagle: apiVersion: write serving.tandem.dev/v1alpha1\n",
    ),
    "the schema": (
        EAGLE.replace("maxDraftLen: 3", "maxDraftLen: 99"),
        "error: eagle:\n  spec.speculation.maxDraftLen: Input should be less than or equal to 32\n",
    ),
}


@pytest.mark.parametrize("metadata", ["", "eagle", "{}", "{generateName: eagle-}", "{name: 7}", "{name: }"])
def test_a_service_without_a_name_is_said_to_have_none(metadata: str, tmp_path: Path) -> None:
    text = EAGLE.replace("{name: eagle}", metadata)
    said = "error: a SpeculativeInferenceService in the file has no metadata.name that is a text: write one\n"
    assert run(tmp_path, text, "validate") == (1, "", said)


@pytest.mark.parametrize(("text", "stderr"), REFUSED.values(), ids=REFUSED)
def test_validate_refuses(text: str, stderr: str, tmp_path: Path) -> None:
    assert run(tmp_path, text, "validate") == (1, "", stderr)


def test_validate_judges_every_service_of_the_file(tmp_path: Path) -> None:
    bad = EAGLE.replace(DRAFT, "").replace("name: eagle", "name: bad")
    code, stdout, stderr = run(tmp_path, f"{bad}---\n{LORA}", "validate")
    assert (code, stdout) == (1, "eagle: accepted, profile trtllm-26.07\n")
    assert stderr.splitlines()[0].startswith("bad: spec: this decodingType needs a draft model")
    assert stderr.splitlines()[1] == UNVERIFIED.strip()
    assert stderr.splitlines()[2] == (
        "warning: eagle: LoRA with speculation: TensorRT-LLM 1.2 does not support it yet, and fails in its attention"
        " or is wrong (https://github.com/NVIDIA/TensorRT-LLM/pull/12661): compare outputs first, or write a profile"
        " with TensorRT-LLM 1.3"
    )


def test_validate_accepts(tmp_path: Path) -> None:
    assert run(tmp_path, EAGLE, "validate") == (0, "eagle: accepted, profile trtllm-26.07\n", UNVERIFIED)


def test_validate_names_an_old_triton(tmp_path: Path) -> None:
    """Of the image that the service names itself."""
    text = EAGLE.replace("26.07}", "26.07, image: 'nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3'}")
    code, stdout, stderr = run(tmp_path, text, "validate")
    assert (code, stdout) == (0, "eagle: accepted, profile trtllm-26.07\n")
    assert (
        "warning: eagle: runtime.image nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3 has Triton 26.04" in stderr
    )


def test_what_is_null_is_absent(tmp_path: Path) -> None:
    # As templates leave it: nothing stands behind these keys.
    text = f"{EAGLE}  placement:\n  replicas:\n  autoscaling:\n  podTemplate: {{spec: {{containers: }}}}\n"
    assert run(tmp_path, text, "validate") == (0, "eagle: accepted, profile trtllm-26.07\n", UNVERIFIED)


def test_validate_takes_what_kubectl_get_prints(tmp_path: Path) -> None:
    live = yaml.safe_load(EAGLE)
    live["metadata"] |= {"namespace": "a", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
    live["status"] = {"observedGeneration": 3, "replicas": 1}
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [live, live]})
    assert run(tmp_path, listed, "validate") == (0, "eagle: accepted, profile trtllm-26.07\n" * 2, UNVERIFIED * 2)


def test_render_warns_beside_the_manifests(tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, LORA, "render")
    assert code == 0
    assert stderr.startswith(f"{UNVERIFIED}warning: eagle: LoRA with speculation")
    assert "Deployment" in [manifest["kind"] for manifest in yaml.safe_load_all(stdout)]


@pytest.mark.parametrize("command", ["render", "validate"])
def test_what_the_api_server_refuses_is_not_rendered(command: str, tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, EAGLE.replace(DRAFT, ""), command)
    assert (code, stdout) == (1, "")
    assert "this decodingType needs a draft model" in stderr


def test_trtllm_config(tmp_path: Path) -> None:
    code, stdout, stderr = run(tmp_path, EAGLE, "render", "--trtllm-config")
    assert code == 0
    assert stderr == f"{UNVERIFIED}serve it with: trtllm-serve serve meta-llama/Llama-3.1-8B-Instruct --config FILE\n"
    assert stdout.splitlines() == [
        "tensor_parallel_size: 2",
        "pipeline_parallel_size: 1",
        "max_batch_size: 16",
        "speculative_config:",
        "  decoding_type: Eagle",
        "  max_draft_len: 3",
        "  speculative_model_dir: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            EAGLE.replace("LLMAPI", "BLS").replace("Eagle3", "DraftTarget"),
            "error: eagle: trtllm-serve and trtllm-bench run the LLM API: write runtime.mode: LLMAPI\n",
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
