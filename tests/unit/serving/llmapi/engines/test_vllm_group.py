"""vLLM over the pods of a group: which node a pod is, and its ranks. tests/triton/test_vllm_nodes.py runs them."""

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tandem_serving.llmapi.engines.vllm import group

LEADER = {"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_WORKER_INDEX": "1"}


@pytest.mark.parametrize(
    ("given", "environment", "added", "reason"),
    [
        ({"nnodes": 2}, LEADER, {"master_addr": "127.0.0.1", "node_rank": 1}, "a node of a group"),
        ({"nnodes": 2}, {}, {}, "a preflight is in no group"),
        ({}, LEADER, {}, "the groups of other engines are no business of its"),
        ({"nnodes": 1}, LEADER, {}, "one node"),
    ],
)
def test_a_pod_of_a_group_is_a_node(
    given: dict[str, Any], environment: dict[str, str], added: dict[str, Any], reason: str
) -> None:
    assert group.placed({"model": "m", **given}, environment) == {"model": "m", **given, **added}, reason


def test_ranks_of_a_node_end_with_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = iter([True, True, True, False])
    process = SimpleNamespace(is_alive=lambda: next(alive))
    executor = SimpleNamespace(workers=[SimpleNamespace(proc=process), SimpleNamespace(proc=process)])
    module = ModuleType("multiproc_executor")
    module.MultiprocExecutor = lambda config, monitor_workers: executor  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.v1", "vllm.v1.executor"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.executor.multiproc_executor", module)
    monkeypatch.setattr(group, "LOOK_SECONDS", 0)
    monkeypatch.setenv(group.OWN_ADDRESS, "")
    monkeypatch.delenv(group.OWN_ADDRESS)
    group.run_ranks(SimpleNamespace(parallel_config=SimpleNamespace(master_addr="127.0.0.1", master_port=29501)))
    assert next(alive, None) is None, "it looked at each, until one had ended"
    assert os.environ[group.OWN_ADDRESS] == "127.0.0.1"
