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
SPLIT = {"target__tensorParallelSize": 2, "draft__tensorParallelSize": 2}


@contextmanager
def node(revision: Path, port: int, variables: dict[str, str]) -> Iterator[psutil.Popen]:
    """The pod that is not the leader."""
    entrypoint = SERVING / "tandem_serving/boot/entrypoint.py"
    python = environments.python(vllm_server.LOCK)
    command = [str(python), str(entrypoint), "node", f"--revision={revision}", f"--port={port}"]
    env = {**os.environ, **vllm_server.CONTAINER, **variables, "PYTHONPATH": str(SERVING), "LWS_WORKER_INDEX": "1"}
    with psutil.Popen(command, env=env, stdout=sys.stderr) as process:
        try:
            yield process
        finally:
            for each in [*process.children(recursive=True), process] if process.is_running() else ():
                each.kill()


def test_two_nodes_answer_as_one_and_a_lost_rank_ends_both(tmp_path: Path, greedy: list[list[int]]) -> None:
    port = free_port()
    variables = {"LWS_LEADER_ADDRESS": "localhost"}
    server = vllm_server.server(
        tmp_path, {"nnodes": 2, "master_port": port}, {**variables, "LWS_WORKER_INDEX": "0"}, **SPLIT
    )
    plan = {"preflight": {"llm_args": {"file": "models-llm_args.yaml", "engine": "vLLM"}}}
    (tmp_path / "launch.json").write_text(json.dumps(plan))
    with node(tmp_path, port, variables) as other, server:
        answer = bls.unary(server.grpc_url, inputs(TEXTS[0], max_tokens=TOKENS), "tensorrt_llm")
        assert ids([answer]) == greedy[0]
        assert (answer["total_accepted_draft_tokens"] > 0).all()
        (rank,) = [each for each in other.children(recursive=True) if "Worker" in " ".join(each.cmdline())]
        rank.kill()
        assert other.wait(120) == 1
        with pytest.raises(InferenceServerException):
            bls.unary(server.grpc_url, inputs(TEXTS[0], max_tokens=TOKENS), "tensorrt_llm")
