"""The preflight's checks of the LLM API's arguments and models, by row: what is wrong, and the message."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tandem_serving.prepare.kv_cache import GIB
from tandem_serving.prepare.llm_args_check import check_llm_args

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
    package = tmp_path / "tensorrt_llm" / "llmapi"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "llm_args.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("tensorrt_llm")]:
        monkeypatch.delitem(sys.modules, name)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with (model / "model.safetensors").open("wb") as weights:
        weights.truncate(40 * GIB)
    write(tmp_path, model="/m", max_batch_size=16)
    gpu = {"memory_gib": 24.0, "devices": {"target": [0, 1]}}
    llm_args = {"file": "llm_args.yaml", "engine": "TensorRT-LLM"}
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
    (tmp_path / "tensorrt_llm" / "llmapi" / "llm_args.py").write_text(WITH_DRAFTER)
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
    package = tmp_path / "tensorrt_llm" / "llmapi"
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
    (tmp_path / "tensorrt_llm" / "llmapi" / "llm_args.py").write_text(module)
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("Unknown", "ArgumentsNotChecked"), reason
    assert message in check.message
    assert check.message.endswith("the server's pod tries its arguments on its GPUs, before it loads the model")


def test_weights_that_are_larger_than_the_gpus(llm_plan: dict[str, Any], tmp_path: Path) -> None:
    llm_plan["gpu"]["memory_gib"] = 16
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.status, check.reason) == ("False", "MemoryTooSmall")
    assert check.message == (
        "weights on each of 2 GPUs: target 20.0 GiB, and about 2 GiB to work with; a GPU has 16 GiB:"
        " raise target.tensorParallelSize, or choose larger GPUs"
    )


QWEN_05B = {"model_type": "qwen2", "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24}
QWEN_72B = {"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80}
SPLIT: list[tuple[str, dict[str, Any], dict[str, Any] | None, dict[str, Any], str]] = [
    # why, the target's config.json, the draft's, arguments, message; empty: it is well
    ("one GPU", QWEN_05B, None, {}, ""),
    (
        "14 heads over 4",
        QWEN_05B,
        None,
        {"tensor_parallel_size": 4},
        "target: 14 attention heads and 2 KV heads cannot be split over 4 GPUs: write target.tensorParallelSize: 1, 2"
        " or 14",
    ),
    (
        "14 heads, each GPU with all of them",
        QWEN_05B,
        None,
        {"tensor_parallel_size": 4, "enable_attention_dp": True},
        "",
    ),
    ("KV heads are copied", QWEN_72B, None, {"tensor_parallel_size": 16}, ""),
    (
        "a draft on the target's mapping",
        QWEN_72B,
        QWEN_05B,
        {"tensor_parallel_size": 8},
        "draft: 14 attention heads and 2 KV heads cannot be split over 8 GPUs: write target.tensorParallelSize: 1, 2"
        " or 14, since mode LLMAPI splits the draft like the target, or name another draft.model.uri, or write"
        " runtime.mode: BLS, where draft.tensorParallelSize is its own",
    ),
    ("more stages than layers", QWEN_05B, None, {"pipeline_parallel_size": 32}, "24 layers cannot be split over 32"),
]


@pytest.mark.parametrize(
    ("target", "draft", "arguments", "message"), [row[1:] for row in SPLIT], ids=[row[0] for row in SPLIT]
)
def test_models_that_cannot_be_split_as_asked(
    llm_plan: dict[str, Any],
    tmp_path: Path,
    target: dict[str, Any],
    draft: dict[str, Any] | None,
    arguments: dict[str, Any],
    message: str,
) -> None:
    models = {"target": target, **({"draft": draft} if draft else {})}
    for role, config in models.items():
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(json.dumps(config))
        llm_plan[role] = {"path": str(tmp_path / role)}
    write(tmp_path, model="/m", **arguments)
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.reason == "ModelNotDivisible") == bool(message), check
    assert message in check.message


CODE = {"model_type": "phi3", "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}}
CODES: list[tuple[str, str, dict[str, Any], bool, bool, str]] = [
    # why, whose, config.json, whether the target's code is trusted, whether it is in the folder, message; empty: well
    ("not trusted, and known", "target", CODE, False, False, ""),
    ("trusted, and there", "target", CODE, True, True, ""),
    (
        "trusted, and not there",
        "target",
        CODE,
        True,
        False,
        "downloads bring no code; remove runtime.extraLlmArgs.trust_remote_code, or name another checkpoint",
    ),
    (
        "not trusted, and unknown to transformers",
        "target",
        {**CODE, "model_type": "mystery"},
        False,
        False,
        "mount the model with its code (pvc://, oci://) and write runtime.extraLlmArgs.trust_remote_code: true",
    ),
    (
        "trusted, and unknown",
        "target",
        {**CODE, "model_type": "mystery"},
        True,
        False,
        "mount the model with its code (pvc://, oci://), if you trust it",
    ),
    (
        "a draft's is always trusted",
        "draft",
        CODE,
        False,
        False,
        "draft: config.json refers to configuration_phi3.py",
    ),
    ("heads' too", "heads", CODE, False, False, "heads: config.json refers to configuration_phi3.py (auto_map)"),
    ("TensorRT-LLM reads it itself", "target", {**CODE, "model_type": "kimi_k2"}, True, False, ""),
    ("code of the model's classes alone", "target", {"auto_map": {"AutoModel": "modeling_x.X"}}, True, False, ""),
    (
        "code of another repository",
        "target",
        {**CODE, "auto_map": {"AutoConfig": "org/name--configuration_phi3.Phi3Config"}},
        True,
        True,
        "refers to configuration_phi3.py",
    ),
]


@pytest.mark.parametrize(
    ("role", "config", "trusted", "there", "message"), [row[1:] for row in CODES], ids=[row[0] for row in CODES]
)
def test_code_of_a_checkpoint(
    llm_plan: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    config: dict[str, Any],
    trusted: bool,
    there: bool,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(CONFIG_MAPPING={"phi3": None}))
    folder = tmp_path / role
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if there:
        (folder / "configuration_phi3.py").touch()
    llm_plan |= {role: {"path": str(folder)}, "gpu": None}
    write(tmp_path, model="/m", trust_remote_code=trusted)
    check = check_llm_args(llm_plan, tmp_path)
    assert (check.reason == "CodeMissing") == bool(message), check
    assert message in check.message
