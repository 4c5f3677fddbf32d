"""KV caches of engines that share GPUs: sizes from config.json, tokens from what is left of the memory."""

from pathlib import Path
from typing import Any

import pytest

from support.serving.engine_folders import CONFIG, engine_folder
from tandem_serving.boot import launch
from tandem_serving.boot.launch import LaunchError, LaunchPlan, ModelSource
from tandem_serving.checkpoint import CheckpointError
from tandem_serving.prepare import kv_cache
from tandem_serving.prepare.kv_cache import GIB, EngineMemory, KvCacheError, Share, budgets, read_engine


# Shapes of Llama 3.1 70B on four GPUs, as trtllm-build writes them.
def changed(**pretrained: Any) -> dict[str, Any]:
    return {**CONFIG, "pretrained_config": {**CONFIG["pretrained_config"], **pretrained}}


@pytest.mark.parametrize(
    ("change", "token", "reason"),
    [
        ({}, 2 * 80 * 2 * 128 * 2, "two of eight KV heads on each of four GPUs, two bytes a number"),
        ({"mapping": {"tp_size": 1, "pp_size": 1}}, 2 * 80 * 8 * 128 * 2, "all heads on one GPU"),
        ({"mapping": {"tp_size": 16, "pp_size": 1}}, 2 * 80 * 1 * 128 * 2, "16 GPUs share 8 heads: one on each"),
        ({"mapping": {"tp_size": 4, "pp_size": 3}}, 2 * 27 * 2 * 128 * 2, "80 layers in three parts: 27 at most"),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, 2 * 80 * 2 * 128, "a byte a number"),
        ({"num_key_value_heads": None, "head_size": None}, 2 * 80 * 16 * 128 * 2, "without groups: as many as heads"),
    ],
)
def test_bytes_of_a_token(change: dict[str, Any], token: int, reason: str, tmp_path: Path) -> None:
    engine = read_engine(engine_folder(tmp_path / "engine", changed(**change), 3 * GIB, 4 * GIB))
    assert engine == EngineMemory(weights=4 * GIB, token=token, max_seq_len=4096), reason


def test_draft_tokens_are_in_the_longest_sequence(tmp_path: Path) -> None:
    config = {**CONFIG, "build_config": {"max_seq_len": 4096, "max_draft_len": 10}}
    assert read_engine(engine_folder(tmp_path / "engine", config, GIB)).max_seq_len == 4096


@pytest.mark.parametrize(
    ("tokens", "change", "workspace", "reason"),
    [
        (8192, {}, 2 * GIB, "trtllm-build's own"),
        (4096, {}, 2 * GIB, "nor less"),
        (8193, {}, 2 * GIB + 2 * (8 * 8192 + 3 * 8192), "a token more; the intermediate size is four hidden ones"),
        (8193, {"intermediate_size": 28672}, 2 * GIB + 2 * (8 * 8192 + 3 * 7168), "split over four GPUs"),
    ],
)
def test_activations_grow_with_the_tokens_of_a_step(
    tokens: int, change: dict[str, Any], workspace: int, reason: str, tmp_path: Path
) -> None:
    config = {**changed(**change), "build_config": {"max_seq_len": 4096, "max_num_tokens": tokens}}
    assert read_engine(engine_folder(tmp_path / "engine", config, GIB)).workspace == workspace, reason


@pytest.mark.parametrize(
    ("config", "ranks", "message"),
    [
        (CONFIG, (), r"no rank\*.engine: build the engine again"),
        (changed(dtype="int4"), (1,), "says no shapes .*int4.*: build the engine again"),
        ({**CONFIG, "build_config": {}}, (1,), "states no maximum sequence length"),
    ],
)
def test_an_engine_that_cannot_be_read(config: Any, ranks: tuple[int, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_engine(engine_folder(tmp_path / "engine", config, *ranks))


LARGE = EngineMemory(weights=35 * GIB, token=80 * 1024, max_seq_len=4096)
SMALL = EngineMemory(weights=3 * GIB, token=32 * 1024, max_seq_len=4096)


@pytest.mark.parametrize(
    ("large", "small", "tokens", "reason"),
    [
        (Share(LARGE, (0,)), Share(SMALL, (0,)), (320128, 320128), "0.9 * (80-35-3-4) GiB for 112 KiB a token"),
        (Share(LARGE, (0, 1)), Share(SMALL, (0,)), (320128, 320128), "the GPU with both decides, for all ranks"),
        (Share(LARGE, (0,)), Share(SMALL, (0,), 100_000), (408256, None), "what is given is taken off"),
        (Share(LARGE, (0,), 4096), Share(SMALL, (0,)), (None, 1110400), "and the rest is the other's"),
    ],
)
def test_tokens(large: Share, small: Share, tokens: tuple[int | None, int | None], reason: str) -> None:
    wanted = {name: value for name, value in zip(("large", "small"), tokens, strict=True) if value}
    assert budgets({"large": large, "small": small}, [80 * GIB, 80 * GIB]) == wanted, reason


def test_what_is_computed_fits() -> None:
    shares = {"large": Share(LARGE, (0,)), "small": Share(SMALL, (0,))}
    found = budgets(shares, [80 * GIB])
    used = sum(share.engine.weights + found[name] * share.engine.token for name, share in shares.items())
    assert used + 2 * kv_cache.WORKSPACE <= 80 * GIB


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ([48 * GIB], r"large and small, and the longest sequence has 200000: large has 35.0 GiB .* memory 48.0 GiB"),
        ([40 * GIB], r"^0 tokens fit"),
        ([], "placed on GPU 0, and the pod has 0"),
    ],
)
def test_what_does_not_fit_is_said_with_numbers(memory: list[int], message: str) -> None:
    long = EngineMemory(SMALL.weights, SMALL.token, 200_000)
    with pytest.raises(KvCacheError, match=message):
        budgets({"large": Share(LARGE, (0,)), "small": Share(long, (0,))}, memory)


def test_sizes_are_added_to_the_configurations(tmp_path: Path) -> None:
    folder = engine_folder(tmp_path / "engine", changed(mapping={"tp_size": 1, "pp_size": 1}), 30 * GIB)
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'name: "{name}"\n')
    parts = {name: {"engine": str(folder), "devices": [0], "max_tokens": None} for name in ("target", "draft")}
    plan = LaunchPlan({"target": ModelSource(tmp_path, None)}, ("tritonserver",), {}, kv_cache=parts)
    launch.size_kv_caches(plan, tmp_path, lambda: [80 * GIB])
    expected = 'parameters { key: "max_tokens_in_paged_kv_cache" value { string_value: "23552" } }\n'
    for name in parts:
        assert (tmp_path / name / "config.pbtxt").read_text() == f'name: "{name}"\n{expected}'


def test_without_a_driver_the_server_does_not_start(tmp_path: Path) -> None:
    folder = engine_folder(tmp_path / "engine", CONFIG, 1)
    plan = LaunchPlan({}, (), {}, kv_cache={"target": {"engine": str(folder), "devices": [0]}})
    with pytest.raises(LaunchError, match="the NVIDIA driver is not in this container"):
        launch.size_kv_caches(plan, tmp_path)
