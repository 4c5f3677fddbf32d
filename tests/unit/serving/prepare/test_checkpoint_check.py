"""Whether an engine of the image's own runs the checkpoints and has the memory: its module is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from reference_engine.torch_backend import checkpoints
from support.serving.model_folders import byte_level
from tandem_serving.boot.launch import LaunchError, LaunchPlan, check_memory
from tandem_serving.prepare.checkpoint_check import check_checkpoints
from tandem_serving.prepare.kv_cache import GIB, KvCacheError
from tandem_serving.prepare.preflight import verdict
from unit.reference_engine import tiny_llama

ONE_GPU, TWO_GPUS = {"target": 0, "draft": 0}, {"target": 0, "draft": 1}


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    """launch.json's `preflight` part for a pair on one GPU."""
    folders = {role: tiny_llama.write(tmp_path / role) for role in ONE_GPU}
    asked = {"module": checkpoints.__name__, "sequences": 16, "max_seq_len": 128, "devices": ONE_GPU}
    return {**{role: {"path": str(folder)} for role, folder in folders.items()}, "engine_check": asked}


def gib(plan: dict[str, Any], *roles: str) -> float:
    """What models take together."""
    return (1 + sum(checkpoints.memory(Path(plan[role]["path"]), 16, 128).total for role in roles)) / GIB


def test_models_that_fit(plan: dict[str, Any]) -> None:
    check = check_checkpoints({**plan, "gpu": {"memory_gib": gib(plan, "target", "draft")}})
    assert (check.type, check.status, check.reason) == ("EnginesReady", "True", "EnginesFit")
    assert "KV cache of 16 sequences of 128 tokens; target: weights 0.0, KV cache 0.0 GiB; draft: " in check.message


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_checkpoint_that_the_engine_does_not_run(plan: dict[str, Any], role: str) -> None:
    path = Path(plan[role]["path"]) / "config.json"
    path.write_text(json.dumps({**tiny_llama.CONFIG, "model_type": "mamba"}))
    check = check_checkpoints(plan)
    assert (check.status, check.reason) == ("False", "CheckpointNotSupported")
    assert check.message.startswith(f"{role}: model_type is 'mamba': the torch backend was tried with ")


def test_two_models_that_each_fit_but_not_together(plan: dict[str, Any]) -> None:
    memory = gib(plan, "target", "draft") * 0.99
    check = check_checkpoints({**plan, "gpu": {"memory_gib": memory}})
    assert (check.status, check.reason) == ("False", "MemoryTooSmall")
    for part in ("target (weights", "draft (weights", "lower serving.maxBatchSize", "placement.strategy: Separate"):
        assert part in check.message
    apart = {**plan, "engine_check": {**plan["engine_check"], "devices": TWO_GPUS}, "gpu": {"memory_gib": memory}}
    assert check_checkpoints(apart).status == "True", "a GPU each"


def test_a_model_too_large_for_its_own_gpu(plan: dict[str, Any]) -> None:
    apart = {**plan, "engine_check": {**plan["engine_check"], "devices": TWO_GPUS}}
    check = check_checkpoints(apart, [gib(plan, "target"), gib(plan, "draft") * 0.99])
    assert (check.status, check.reason) == ("False", "MemoryTooSmall")
    assert check.message.startswith("draft (")
    assert "Separate" not in check.message, "it has a GPU to itself"


def test_a_model_over_two_gpus(plan: dict[str, Any]) -> None:
    """Each GPU has its share; the draft is on the first, which needs more."""
    split = {**plan, "engine_check": {**plan["engine_check"], "devices": {"target": [0, 1], "draft": 0}}}
    share = checkpoints.memory(Path(plan["target"]["path"]), 16, 128, 2).total / GIB
    first = share + gib(plan, "draft")
    assert check_checkpoints(split, [first, share * 1.01]).status == "True"
    assert check_checkpoints(split, [first, share * 0.99]).reason == "MemoryTooSmall"
    assert check_checkpoints(split, [first * 0.99, share * 1.01]).reason == "MemoryTooSmall"
    with pytest.raises(LaunchError, match="the models need 2 GPUs, the pod has 1"):
        check_memory(launch(split), lambda: [80 * GIB])


def test_a_model_that_cannot_be_split_so(plan: dict[str, Any]) -> None:
    plan["engine_check"]["devices"] = {"target": [0, 1, 2], "draft": 0}
    check = check_checkpoints(plan)
    assert (check.status, check.reason) == ("False", "CheckpointNotSupported")
    assert check.message.startswith("target: num_")


def test_without_gpus_and_where_their_memory_is_not_known(plan: dict[str, Any]) -> None:
    assert check_checkpoints(plan).status == "True"
    del plan["engine_check"]["devices"]
    assert check_checkpoints({**plan, "gpu": {"memory_gib": 0.001}}).status == "True"


def test_an_image_without_the_engine(plan: dict[str, Any]) -> None:
    plan["engine_check"]["module"] = "no_such_engine.checkpoints"
    check = check_checkpoints(plan)
    assert (check.status, check.reason) == ("False", "CheckpointNotSupported")
    assert "the image has no no_such_engine.checkpoints" in check.message


ARGUMENTS = {"file": "llm_args.yaml", "engine": "Tandem"}


@pytest.mark.parametrize(
    ("module", "arguments", "reason"),
    [
        (checkpoints.__name__, "{model: m, backend: torch}", "ArgumentsAccepted"),
        (checkpoints.__name__, "{model: m, backend: jax}", "ArgumentsRefused"),
        ("no_such_engine", "{model: m, backend: jax}", "CheckpointNotSupported"),
    ],
)
def test_the_first_check_that_does_not_pass_is_the_verdict(
    plan: dict[str, Any], tmp_path: Path, module: str, arguments: str, reason: str
) -> None:
    """Mode LLMAPI: the arguments are tried, too."""
    for role in ONE_GPU:
        folder = tiny_llama.write(Path(plan[role]["path"]), {"vocab_size": 300})
        byte_level().save(str(folder / "tokenizer.json"))
    (tmp_path / "llm_args.yaml").write_text(arguments)
    plan["engine_check"]["module"] = module
    found = verdict({**plan, "llm_args": ARGUMENTS}, tmp_path)["checks"]
    assert [check["reason"] for check in found if check["type"] == "EnginesReady"] == [reason], found


def launch(preflight: dict[str, Any]) -> LaunchPlan:
    return LaunchPlan(models={}, command=(), env={}, preflight=preflight)


def test_the_gpus_of_the_pod_have_the_last_word(plan: dict[str, Any]) -> None:
    """What nodes have need not be what the resource says; the server does not start in vain."""
    enough = int(gib(plan, "target", "draft") * GIB) + 1
    check_memory(launch({**plan, "gpu": {"memory_gib": 0.001}}), lambda: [enough])
    with pytest.raises(LaunchError, match="GiB of one GPU"):
        check_memory(launch({**plan, "gpu": {"memory_gib": 80}}), lambda: [enough // 2])


def test_a_pod_with_too_few_gpus(plan: dict[str, Any]) -> None:
    plan["engine_check"]["devices"] = TWO_GPUS
    with pytest.raises(LaunchError, match="the models need 2 GPUs, the pod has 1"):
        check_memory(launch(plan), lambda: [80 * GIB])


def test_a_pod_without_the_driver(plan: dict[str, Any]) -> None:
    def none() -> list[int]:
        raise KvCacheError("the NVIDIA driver is not in this container")

    with pytest.raises(LaunchError, match="driver is not in this container"):
        check_memory(launch(plan), none)
    del plan["engine_check"]["devices"]
    check_memory(launch(plan), none)
