"""The dry run of the arguments in the server's pod: what the image refuses is the container's termination message."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tandem_serving.engine import failure
from tandem_serving.llmapi.dry_run import before_loading
from tandem_serving.llmapi.engine import ArgumentsRefused
from tandem_serving.llmapi.engines.tensorrt_llm import TensorRtLlm, dialect

PACKAGE = "stand_in_dry_run"
ENGINE = TensorRtLlm("Stand-in", PACKAGE)
# As 1.2.1: a function makes an object of the mapping, and takes `decoding_type` out of it.
UPDATE = """
def update_llm_args_with_extra_dict(llm_args, llm_args_dict):
    kind = llm_args_dict["speculative_config"].pop("decoding_type", None)
    if kind != "DraftTarget":
        raise ValueError(f"Invalid decoding type: {kind}")
    return {**llm_args, **llm_args_dict, "speculative_config": kind}
"""
TAKES = """
class TorchLlmArgs:
    def __init__(self, model, speculative_config): pass
"""
WANTS_A_GPU = """
class TorchLlmArgs:
    def __init__(self, **_): raise RuntimeError("CUDA error")
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A package with this llm_args.py; returns where a failure is published."""

    def make(llm_args: str) -> Path:
        folder = tmp_path / PACKAGE / "llmapi"
        folder.mkdir(parents=True)
        for file in (folder.parent / "__init__.py", folder / "__init__.py"):
            file.touch()
        (folder / "llm_args.py").write_text(llm_args)
        (folder / "llm_utils.py").write_text(UPDATE)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            monkeypatch.delitem(sys.modules, name)
        report = tmp_path / "engine-failure.json"
        monkeypatch.setenv(failure.VARIABLE, str(report))
        return report

    return make


def arguments(kind: str) -> dict[str, Any]:
    return {"model": "/m", "speculative_config": {"decoding_type": kind, "max_draft_len": 4}}


def test_what_the_image_takes_is_loaded(image: Callable[[str], Path]) -> None:
    report, asked = image(TAKES), arguments("DraftTarget")
    before_loading(ENGINE, asked)
    assert not report.exists()
    assert dialect.llm_arguments(asked, PACKAGE)["speculative_config"] == "DraftTarget", "and the engine gets it all"


def test_what_it_refuses_ends_the_container(image: Callable[[str], Path]) -> None:
    report = image(TAKES)
    with pytest.raises(ArgumentsRefused, match="Invalid decoding type: Draft_Target"):
        before_loading(ENGINE, arguments("Draft_Target"))
    assert json.loads(report.read_text()) == {
        "engineFailure": {
            "model": "Stand-in",
            "reason": "EngineArgumentsRefused",
            "message": "Stand-in of this image refuses the arguments: Invalid decoding type: Draft_Target;"
            " change the field, or runtime.extraLlmArgs",
        }
    }


def test_a_long_refusal_is_a_termination_message_all_the_same(image: Callable[[str], Path]) -> None:
    """Else the kubelet would cut it, and nobody could read it."""
    report = image(TAKES)
    with pytest.raises(ArgumentsRefused):
        before_loading(ENGINE, arguments("\u00e9\n" * 5000))
    assert len(report.read_bytes()) < 4096
    assert "\n" not in json.loads(report.read_text())["engineFailure"]["message"]


@pytest.mark.parametrize("llm_args", [WANTS_A_GPU, "import no_such_module", ""])
def test_what_cannot_be_tried_is_left_to_the_engine(image: Callable[[str], Path], llm_args: str) -> None:
    report = image(llm_args)
    before_loading(ENGINE, arguments("DraftTarget"))
    assert not report.exists()
