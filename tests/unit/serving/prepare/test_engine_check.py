"""The preflight's checks of engines, by row: what is wrong, and the message."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.serving.engine_folders import CONFIG, engine_folder
from tandem_serving.prepare.engine_check import check_engines
from tandem_serving.prepare.kv_cache import GIB

BUILT = {
    **CONFIG,
    "build_config": {"max_seq_len": 4096, "max_draft_len": 10, "max_batch_size": 16},
}


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    """launch.json's `preflight` part for a target's engine of TP 4 that is as asked for."""
    folder = engine_folder(tmp_path / "engine", BUILT, *[35 * GIB] * 4)
    wanted = {"path": str(folder), "tp_size": 4, "pp_size": 1, "max_batch_size": 16, "max_draft_len": 4}
    gpu = {"memory_gib": 80.0, "devices": {"target": [0, 1, 2, 3]}}
    return {"engines": {"target": wanted}, "tensorrt_llm": "1.2.1", "gpu": gpu}


def test_an_engine_that_is_as_asked_for(plan: dict[str, Any]) -> None:
    check = check_engines(plan)
    assert (check.status, check.reason) == ("True", "EnginesFit")
    assert check.message == (
        "engines for target are as asked for; about 507200 tokens of KV cache fit next to them into 80 GiB a GPU"
    )


def test_without_the_gpus_memory_nothing_is_said_of_it(plan: dict[str, Any]) -> None:
    assert check_engines({**plan, "gpu": None}).message == "engines for target are as asked for"


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        (
            {"max_draft_len": 11},
            "EngineLimitTooLow",
            "built with max_draft_len 10, needed 11: build it again with --max_draft_len=11, or lower"
            " speculation.maxDraftLen",
        ),
        (
            {"max_batch_size": 32},
            "EngineLimitTooLow",
            "built with max_batch_size 16, needed 32: build it again with --max_batch_size=32, or lower"
            " serving.maxBatchSize",
        ),
        (
            {"tp_size": 2},
            "EngineMappingDiffers",
            "has tp_size 4, the resource 2: write tensorParallelSize: 4, or build the engine again from a checkpoint"
            " that was converted with --tp_size=2",
        ),
        (
            {"pp_size": 2},
            "EngineMappingDiffers",
            "has pp_size 1, the resource 2: write pipelineParallelSize: 1, or build the engine again from a"
            " checkpoint that was converted with --pp_size=2",
        ),
    ],
)
def test_an_engine_that_is_not(plan: dict[str, Any], change: dict[str, int], reason: str, message: str) -> None:
    plan["engines"]["target"] |= change
    check = check_engines(plan)
    assert (check.status, check.reason) == ("False", reason)
    assert check.message == f"target engine {plan['engines']['target']['path']}: {message}"


EXTERNAL = {"speculative_decoding_mode": "draft_tokens_external"}
BUILD = "build it again with --speculative_decoding_mode=draft_tokens_external --max_draft_len=4"
MODES: list[tuple[str, dict[str, object], str, str]] = [
    # why, what the engine's build_config has, reason, message
    ("as it must be", {"speculative_decoding_mode": 2}, "EnginesFit", "as asked for"),
    ("in words", {"speculative_decoding_mode": "DRAFT_TOKENS_EXTERNAL"}, "EnginesFit", "as asked for"),
    ("it does not say", {}, "EnginesFit", "as asked for"),
    (
        "built like any other model: 0 draft tokens, which no maxDraftLen is below",
        {"speculative_decoding_mode": 1, "max_draft_len": 0},
        "EngineModeDiffers",
        f"built with speculative_decoding_mode none: {BUILD}",
    ),
    (
        "for Medusa",
        {"speculative_decoding_mode": 4},
        "EngineModeDiffers",
        f"speculative_decoding_mode medusa: {BUILD}",
    ),
    ("one that nobody knows", {"speculative_decoding_mode": 99}, "EngineModeDiffers", "mode 99: build it again"),
    ("no draft tokens", {"max_draft_len": 0}, "EngineLimitTooLow", f"max_draft_len 0, needed 4: {BUILD}"),
]


@pytest.mark.parametrize(("build", "reason", "message"), [row[1:] for row in MODES], ids=[row[0] for row in MODES])
def test_the_mode_that_an_engine_was_built_for(
    plan: dict[str, Any], build: dict[str, object], reason: str, message: str
) -> None:
    wanted = plan["engines"]["target"]
    config = {**BUILT, "build_config": {**BUILT["build_config"], **build}}
    engine_folder(Path(wanted["path"]), config, *[35 * GIB] * 4)
    wanted |= EXTERNAL
    check = check_engines(plan)
    assert check.reason == reason
    assert message in check.message
    assert not check.message.endswith("lower speculation.maxDraftLen") or reason != "EngineLimitTooLow"


LLAMA_70B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"vocab_size": 32000}, "its vocab_size is 128256, that of "),
        ({"num_hidden_layers": 32, "hidden_size": 4096}, "its hidden_size is 8192, that of "),
        ({"num_hidden_layers": 81}, "its num_hidden_layers is 80, that of "),
        (
            {"text_config": {"num_attention_heads": 32}, "num_attention_heads": None},
            "its num_attention_heads is 64, that",
        ),
        ({"num_attention_heads": None}, ""),
    ],
    ids=["its own", "another vocabulary", "a smaller one", "one layer more", "another text model", "says nothing"],
)
def test_an_engine_of_another_model(
    plan: dict[str, Any], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({**LLAMA_70B, **changes}))
    check = check_engines({**plan, "target": {"path": str(model)}})
    assert check.reason == ("EngineModelDiffers" if message else "EnginesFit"), check.message
    assert message in check.message


@pytest.mark.parametrize(
    ("plugins", "reason"),
    [
        ({"use_paged_context_fmha": True}, "EnginesFit"),
        ({"use_paged_context_fmha": False}, "EngineWithoutPagedContext"),
        ({}, "EngineWithoutPagedContext"),
    ],
    ids=["built for it", "built without", "says nothing of it"],
)
def test_an_engine_that_is_called_at_each_step(plan: dict[str, Any], plugins: dict[str, bool], reason: str) -> None:
    wanted = plan["engines"]["target"]
    build = {**BUILT["build_config"], "plugin_config": plugins}
    engine_folder(Path(wanted["path"]), {**BUILT, "build_config": build}, *[35 * GIB] * 4)
    wanted["use_paged_context_fmha"] = True
    assert check_engines(plan).reason == reason


@pytest.mark.parametrize(
    ("build", "wanted", "reason"),
    [
        ({"gather_generation_logits": True}, True, "EnginesFit"),
        ({"gather_generation_logits": False}, True, "EngineWithoutLogits"),
        ({}, True, "EngineWithoutLogits"),
        ({"gather_generation_logits": False}, False, "EnginesFit"),
    ],
    ids=["built for it", "built without", "says nothing of it", "by match"],
)
def test_an_engine_whose_logits_are_asked_for(
    plan: dict[str, Any], build: dict[str, bool], wanted: bool, reason: str
) -> None:
    engine = plan["engines"]["target"]
    config = {**BUILT, "build_config": {**BUILT["build_config"], **build}}
    engine_folder(Path(engine["path"]), config, *[35 * GIB] * 4)
    engine["gather_generation_logits"] = wanted
    assert check_engines(plan).reason == reason


NARROW = (
    "; warning: a step of the target takes 2 of 16 texts of 4090 tokens, and 16 of 512: where texts are longer, build"
    " with max_num_tokens >= 16 * their length (65440 for the longest), or lower serving.maxBatchSize"
)


@pytest.mark.parametrize(
    ("tokens", "whole_texts", "warning"),
    [(8192, True, NARROW), (65440, True, ""), (8192, False, ""), (None, True, "")],
    ids=["too few", "enough", "texts come once", "says nothing of it"],
)
def test_an_engine_whose_steps_do_not_take_all_rounds(
    plan: dict[str, Any], tokens: int | None, whole_texts: bool, warning: str
) -> None:
    """Texts of 4096 tokens less 10 of the engine's own, and 4 draft tokens."""
    engine = plan["engines"]["target"] | ({"whole_texts": True} if whole_texts else {})
    config = {**BUILT, "build_config": {**BUILT["build_config"], "max_num_tokens": tokens}}
    engine_folder(Path(engine["path"]), config, *[35 * GIB] * 4)
    check = check_engines({"engines": {"target": engine}, "tensorrt_llm": "1.2.1"})
    assert (check.status, check.reason) == ("True", "EnginesFit")
    assert check.message == f"engines for target are as asked for{warning}"


def test_an_engine_of_another_version(plan: dict[str, Any]) -> None:
    check = check_engines({**plan, "tensorrt_llm": "1.2.0"})
    assert check.reason == "EngineVersionDiffers"
    assert "built by TensorRT-LLM 1.2.1, the image has 1.2.0: build it again" in check.message


@pytest.mark.parametrize(
    ("image", "reason"),
    [("1.2.1", "EnginesFit"), ("1.2.1+cu130", "EnginesFit"), ("1.2.0", "EngineVersionDiffers")],
)
def test_the_version_that_counts_is_the_image_s(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, reason: str
) -> None:
    """Of a profile with another image (runtime.image) each engine that is built has the image's."""
    info = tmp_path / f"tensorrt_llm-{image}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {image}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert check_engines({**plan, "tensorrt_llm": "1.1.0"}).reason == reason


def test_an_engine_with_a_missing_rank(plan: dict[str, Any]) -> None:
    (Path(plan["engines"]["target"]["path"]) / "rank3.engine").unlink()
    assert "has 3 rank*.engine of 4: copy all" in check_engines(plan).message


def test_a_folder_without_an_engine(plan: dict[str, Any], tmp_path: Path) -> None:
    plan["engines"]["target"]["path"] = str(tmp_path / "nowhere")
    check = check_engines(plan)
    assert (check.status, check.reason) == ("False", "EngineInvalid")


def test_an_engine_that_is_larger_than_its_gpus(plan: dict[str, Any]) -> None:
    plan["gpu"]["memory_gib"] = 37.1
    check = check_engines(plan)
    assert (check.status, check.reason) == ("False", "MemoryTooSmall")
    assert "1152 tokens fit into the KV caches of target, and the longest sequence has 4096" in check.message
