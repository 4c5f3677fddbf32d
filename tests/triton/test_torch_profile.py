"""Profile `torch` on the real Triton server, as the operator renders it but for GPUs: checkpoints in the Hub's
layout, on the CPU.

    TANDEM_TORCH_PYTHON=VENV/bin/python3 make triton

VENV: of this Python's version, with the packages of images/reference-torch/requirements.txt. They are large: without
the variable, as in CI, nothing of this runs.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tritonclient.utils import InferenceServerException

from support.serving.model_folders import byte_level
from tandem.api.roles import Role
from tandem.api.types import SpeculativeInferenceService
from tandem.render import LATEST, Record, Revision, render
from tandem.settings import load_settings
from tandem_serving.prepare.preflight import verdict
from triton import bls_client as bls
from triton import llmapi_client as llmapi
from triton.bls_client import ids
from triton.harness import Options, TritonServer
from triton.repository import ENGINES
from triton.tensorrt_profile import add_code
from triton.waits import eventually, metric

PYTHON = os.environ.get("TANDEM_TORCH_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TANDEM_TORCH_PYTHON names no Python with torch")
KINDS = ("qwen2", "llama")
TOKENS, MAX_SEQ_LEN = 24, 96
PROMPT = "def add(a, b):\n    return"
SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: pair, namespace: team-a}
spec:
  runtime: {mode: BLS, profile: torch}
  target: {model: {uri: hf://org/target}, engine: {build: {maxSeqLen: 96}}}
  draft: {model: {uri: hf://org/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4, adaptive: {enabled: false}}
"""


def run(*arguments: str) -> str:
    return subprocess.run([PYTHON, *arguments], capture_output=True, text=True, check=True).stdout


def rendered(folders: dict[Role, Path], mode: str) -> Revision:
    raw = yaml.safe_load(SERVICE)
    if mode == "LLMAPI":
        del raw["spec"]["target"]["engine"]
        raw["spec"]["runtime"] |= {"mode": mode, "extraLlmArgs": {"max_seq_len": MAX_SEQ_LEN}}
    profile = load_settings().profile("torch")
    assert profile is not None
    return render(
        Record(
            renderer=LATEST,
            serving_image="serving:1",
            profile=profile.model_copy(update={"gpus": False}),
            spec=SpeculativeInferenceService.model_validate(raw).spec,
            fetched={role: str(folder) for role, folder in folders.items()},
        )
    )


def write(revision: Revision, folder: Path) -> Path:
    """The revision's files, with their own folder for the one in pods."""
    folder.mkdir()
    for name, text in revision.files.items():
        (folder / name).write_text(text.replace("/etc/tandem/revision", str(folder)))
    return folder


def repository(revision: Path, folder: Path) -> Path:
    for name, model in json.loads((revision / "launch.json").read_text())["models"].items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text((revision / model["config"]).read_text())
        source = Path(model.get("source", ""))
        if source.is_relative_to("/opt/reference"):
            (folder / name / "1").symlink_to(ENGINES / source.name / "1")
        else:
            add_code(folder / name / "1", source.name)
    return folder


@dataclass(frozen=True)
class Pair:
    """Folders of the models, and the target's greedy tokens by transformers itself."""

    folders: dict[Role, Path]
    expected: list[int]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two equal models, so that drafts are accepted."""
    hub, tokenizer = tmp_path_factory.mktemp("hub"), byte_level()
    tokenizer.save(str(hub / "tokenizer.json"))
    script, prompt = Path(__file__).with_name("torch_checkpoint.py"), json.dumps(tokenizer.encode(PROMPT).ids)
    where = str(hub / "target"), str(hub / "tokenizer.json")
    expected = json.loads(run(str(script), request.param, *where, prompt, str(TOKENS)))
    assert len(set(expected)) > 3, "one token for ever shows little"
    assert len(list((hub / "target").glob("*.safetensors"))) > 1
    shutil.copytree(hub / "target", hub / "draft")
    return Pair({Role.TARGET: hub / "target", Role.DRAFT: hub / "draft"}, expected)


@pytest.fixture(scope="module", params=["BLS", "LLMAPI"])
def server(
    request: pytest.FixtureRequest, pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, TritonServer]]:
    work = tmp_path_factory.mktemp("torch")
    revision = write(rendered(pair.folders, request.param), work / "revision")
    checks = verdict(json.loads((revision / "launch.json").read_text())["preflight"], revision)["checks"]
    assert {check["type"]: check["status"] for check in checks} == dict.fromkeys(
        ("ModelsReady", "EnginesReady", "PairCompatible"), "True"
    ), checks
    packages = Path(run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    options = replace(Options.default(), packages=packages)
    with TritonServer(repository(revision, work / "models"), options) as server:
        yield request.param, server


def answer(mode: str, server: TritonServer, streaming: bool, tokens: int = TOKENS) -> list[bls.Response]:
    if mode == "BLS":
        given = bls.inputs(PROMPT, max_tokens=tokens)
        if not streaming:
            return [bls.unary(server.grpc_url, given)]
        return bls.stream(server.grpc_url, {**given, "stream": np.array([[True]])})
    given = llmapi.inputs(PROMPT, max_tokens=tokens, streaming=streaming)
    if not streaming:
        return [bls.unary(server.grpc_url, given, "tensorrt_llm")]
    return bls.stream(server.grpc_url, given, "tensorrt_llm_stream")


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "at once"])
def test_the_target_s_own_greedy_text(server: tuple[str, TritonServer], pair: Pair, streaming: bool) -> None:
    assert ids(answer(*server, streaming)) == pair.expected


def test_drafts_are_made_and_accepted(server: tuple[str, TritonServer]) -> None:
    mode, triton = server
    answer(mode, triton, streaming=True)
    drafted, accepted = (f"tandem_spec_decode_num_{kind}_tokens_total" for kind in ("draft", "accepted"))
    # Both models are the same.
    eventually(lambda: 0 < metric(triton, drafted) == metric(triton, accepted), "all drafts are accepted")


def test_what_the_engine_has_no_room_for_is_refused(server: tuple[str, TritonServer]) -> None:
    """By the length that is rendered, not the model's own, which is larger."""
    with pytest.raises(InferenceServerException, match=str(MAX_SEQ_LEN)):
        answer(*server, streaming=True, tokens=MAX_SEQ_LEN)
