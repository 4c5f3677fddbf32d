"""The preflight's checks of engines and of the LLM API's arguments, by row: what is wrong, and the message."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.serving.engine_folders import CONFIG, engine_folder
from tandem_serving.prepare.engine_check import check_engines
from tandem_serving.prepare.kv_cache import GIB
from tandem_serving.prepare.llm_args_check import check_llm_args

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
            "built with max_draft_len 10, needed 11: lower speculation.maxDraftLen",
        ),
        (
            {"max_batch_size": 32},
            "EngineLimitTooLow",
            "built with max_batch_size 16, needed 32: lower serving.maxBatchSize",
        ),
        ({"tp_size": 2}, "EngineMappingDiffers", "has tp_size 4, the resource 2: make them equal"),
        ({"pp_size": 2}, "EngineMappingDiffers", "has pp_size 1, the resource 2: make them equal"),
    ],
)
def test_an_engine_that_is_not(plan: dict[str, Any], change: dict[str, int], reason: str, message: str) -> None:
    plan["engines"]["target"] |= change
    check = check_engines(plan)
    assert (check.status, check.reason) == ("False", reason)
    assert check.message == f"target engine {plan['engines']['target']['path']}: {message}"


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


# Stands for tensorrt_llm: its argument class refuses what it does not know, as a strict pydantic model does.
PACKAGE = """
class TorchLlmArgs:
    def __init__(self, model, max_batch_size=8):
        if max_batch_size < 1:
            raise ValueError("max_batch_size: Input should be greater than 0")
"""


@pytest.fixture
def llm_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A plan with arguments, a stand-in package that reads them, and 40 GiB of weights on two GPUs."""
    package = tmp_path / "stand_in_llm" / "llmapi"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "llm_args.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("stand_in_llm")]:
        monkeypatch.delitem(sys.modules, name)
    model = tmp_path / "model"
    model.mkdir()
    with (model / "model.safetensors").open("wb") as weights:
        weights.truncate(40 * GIB)
    write(tmp_path, model="/m", max_batch_size=16)
    gpu = {"memory_gib": 24.0, "devices": {"target": [0, 1]}}
    llm_args = {"file": "llm_args.yaml", "package": "stand_in_llm"}
    return {"target": {"path": str(model)}, "llm_args": llm_args, "gpu": gpu}


def write(folder: Path, **arguments: object) -> None:
    (folder / "llm_args.yaml").write_text(yaml.safe_dump(arguments))


def test_arguments_that_the_image_takes(llm_plan: dict[str, Any], tmp_path: Path) -> None:
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("True", "ArgumentsAccepted")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "/m", "max_batch_size": 0}, "max_batch_size: Input should be greater than 0"),
        ({"model": "/m", "max_batch_sise": 4}, "unexpected keyword argument 'max_batch_sise'"),
    ],
)
def test_arguments_that_it_refuses(
    llm_plan: dict[str, Any], tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    write(tmp_path, **arguments)
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("False", "ArgumentsRefused")
    assert message in check.message
    assert check.message.endswith("change the field, or runtime.extraLlmArgs")


# As upstream's UserProvidedDecodingConfig: its `drafter` has no default.
WITH_DRAFTER = """
class TorchLlmArgs:
    def __init__(self, model, speculative_config):
        if "drafter" not in speculative_config:
            raise ValueError("speculative_config.User_Provided.drafter: Field required")
"""


def test_a_drafter_which_no_file_holds_is_not_missed(llm_plan: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "stand_in_llm" / "llmapi" / "llm_args.py").write_text(WITH_DRAFTER)
    write(tmp_path, model="/m", speculative_config={"decoding_type": "User_Provided", "max_draft_len": 4})
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("True", "ArgumentsAccepted"), check.message


# As the early release candidates of 1.2: objects of the arguments' mappings are made by a function, and the class
# knows no `decoding_type`.
CONVERTED = """
class TorchLlmArgs:
    def __init__(self, model, speculative_config):
        if not isinstance(speculative_config, NGramDecodingConfig):
            raise ValueError("speculative_config.decoding_type: Extra inputs are not permitted")

class NGramDecodingConfig:
    pass
"""
UPDATE = """
from .llm_args import NGramDecodingConfig

def update_llm_args_with_extra_dict(llm_args, llm_args_dict):
    if llm_args_dict["speculative_config"]["decoding_type"] != "NGram":
        raise ValueError("Invalid decoding type")
    return {**llm_args, **llm_args_dict, "speculative_config": NGramDecodingConfig()}
"""


@pytest.mark.parametrize(("kind", "reason"), [("NGram", "ArgumentsAccepted"), ("PARD", "ArgumentsRefused")])
def test_arguments_are_tried_as_the_server_makes_them(
    llm_plan: dict[str, Any], tmp_path: Path, kind: str, reason: str
) -> None:
    package = tmp_path / "stand_in_llm" / "llmapi"
    (package / "llm_args.py").write_text(CONVERTED)
    (package / "llm_utils.py").write_text(UPDATE)
    write(tmp_path, model="/m", speculative_config={"decoding_type": kind, "max_draft_len": 4})
    check = check_llm_args(llm_plan, tmp_path)
    assert check.reason == reason, check.message


NOT_TRIED = [
    # the package's llm_args.py, part of the message, why
    ("import no_such_module", "No module named 'no_such_module'", "what it imports is not there"),
    ("import ctypes; ctypes.CDLL('libno.so.1')", "libno.so.1: cannot open shared", "it loads the driver's library"),
    (
        "class TorchLlmArgs:\n    def __init__(self, **_): raise RuntimeError('Found no NVIDIA driver')",
        "Found no NVIDIA driver",
        "it looks at the GPU to check an argument",
    ),
]


@pytest.mark.parametrize(("module", "message", "reason"), NOT_TRIED, ids=[row[2] for row in NOT_TRIED])
def test_what_fails_for_want_of_a_gpu_is_unknown(
    llm_plan: dict[str, Any], tmp_path: Path, module: str, message: str, reason: str
) -> None:
    (tmp_path / "stand_in_llm" / "llmapi" / "llm_args.py").write_text(module)
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("Unknown", "ArgumentsNotChecked"), reason
    assert message in check.message


def test_weights_that_are_larger_than_the_gpus(llm_plan: dict[str, Any], tmp_path: Path) -> None:
    llm_plan["gpu"]["memory_gib"] = 16
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("False", "MemoryTooSmall")
    assert check.message == (
        "weights on each of 2 GPUs: target 20.0 GiB, and about 2 GiB to work with; a GPU has 16 GiB:"
        " raise target.tensorParallelSize, or choose larger GPUs"
    )
