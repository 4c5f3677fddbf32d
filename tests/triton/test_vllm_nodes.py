"""vLLM as two nodes of one machine, by the image's own entry points: a leader with Triton, and a pod with the other
rank. No ssh, no MPI."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from tritonclient.utils import InferenceServerException

from cluster.ports import free_port
from support import environments
from triton import bls_client as bls
from triton import vllm_server
from triton.bls_client import ids
from triton.harness import REPOSITORY_ROOT
from triton.llmapi_client import inputs
from triton.target_alone import TEXTS, TOKENS, greedy

__all__ = ["greedy"]
pytestmark = pytest.mark.nightly
SERVING = REPOSITORY_ROOT / "images/serving"
LLM_ARGS = "models-llm_args.yaml"


@contextmanager
def node(revision: Path, port: int) -> Iterator[psutil.Popen]:
    """The pod that is not the leader."""
    entrypoint = SERVING / "tandem_serving/boot/entrypoint.py"
    python = environments.python(vllm_server.LOCK)
    command = [str(python), str(entrypoint), "node", f"--revision={revision}", f"--port={port}"]
    env = {**os.environ, **vllm_server.CONTAINER, "PYTHONPATH": str(SERVING), "LWS_WORKER_INDEX": "1"}
    with psutil.Popen(command, env=env, stdout=sys.stderr) as process:
        try:
            yield process
        finally:
            for each in [*process.children(recursive=True), process] if process.is_running() else ():
                each.kill()


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The leader's, for its ranks."""
    monkeypatch.setenv("LWS_LEADER_ADDRESS", "localhost")
    monkeypatch.setenv("LWS_WORKER_INDEX", "0")
    return free_port()


def over_two_nodes(folder: Path, port: int) -> None:
    """Have the server of `folder` run as the operator has it for two nodes."""
    file = folder / LLM_ARGS
    given = yaml.safe_load(file.read_text(encoding="utf-8"))
    given |= {"tensor_parallel_size": 2, "nnodes": 2, "master_port": port}
    given["speculative_config"]["draft_tensor_parallel_size"] = 2
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    plan = {"server": {"command": ["tritonserver"]}, "preflight": {"llm_args": {"file": LLM_ARGS, "engine": "vLLM"}}}
    (folder / "launch.json").write_text(json.dumps(plan), encoding="utf-8")


def test_two_nodes_answer_as_one_and_a_lost_rank_ends_both(
    tmp_path: Path, port: int, greedy: list[list[int]]
) -> None:
    server = vllm_server.server(tmp_path)
    over_two_nodes(tmp_path, port)
    with node(tmp_path, port) as other, server:
        answer = bls.unary(server.grpc_url, inputs(TEXTS[0], max_tokens=TOKENS), "tensorrt_llm")
        assert ids([answer]) == greedy[0]
        assert (answer["total_accepted_draft_tokens"] > 0).all()
        (rank,) = [each for each in other.children(recursive=True) if "Worker" in " ".join(each.cmdline())]
        rank.kill()
        assert other.wait(120) == 1
        with pytest.raises(InferenceServerException):
            bls.unary(server.grpc_url, inputs(TEXTS[0], max_tokens=TOKENS), "tensorrt_llm")
