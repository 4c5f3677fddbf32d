import sys
from pathlib import Path
from typing import Any

import pytest

from tandem_serving.llmapi import arguments
from tandem_serving.llmapi.arguments import ArgumentsError

UNREADABLE = [
    ("no file", None, "cannot be read (No such file or directory): mount the revision's ConfigMap"),
    ("no YAML", "model: [", "is no YAML"),
    ("no mapping", "- model", "names no model"),
    ("no model", "backend: pytorch", "names no model: it must be a mapping with the key `model`, a folder"),
    ("a number", "model: 7", "names no model"),
]


@pytest.mark.parametrize(("reason", "text", "message"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_arguments_that_cannot_be_read(tmp_path: Path, reason: str, text: str | None, message: str) -> None:
    path = tmp_path / "llm_args.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ArgumentsError) as error:
        arguments.read(path)
    assert message in str(error.value)


def test_arguments_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "llm_args.yaml").write_text("model: /models/a\nspeculative_config: {decoding_type: NGram}\n")
    read = arguments.read(tmp_path / "llm_args.yaml")
    assert read == {"model": "/models/a", "speculative_config": {"decoding_type": "NGram"}}


CODE = "class Drafter:\n    pass\n\nMADE = Drafter()\n\nclass Outer:\n    inner = MADE\n"
ENTRY_POINTS = [
    ("first:Drafter", "a class"),
    ("first:MADE", "an object"),
    ("first:Outer.inner", "an attribute of one"),
]


@pytest.mark.parametrize(("entry_point", "reason"), ENTRY_POINTS, ids=[reason for _, reason in ENTRY_POINTS])
def test_drafters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry_point: str, reason: str) -> None:
    module = f"drafter_{reason.split()[-1]}"
    (tmp_path / f"{module}.py").write_text(CODE)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    drafter = arguments.load_drafter(entry_point.replace("first", module), str(tmp_path))
    assert type(drafter).__name__ == "Drafter"


def test_a_drafter_s_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("image", "mounted"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "drafter_of_two.py").write_text(f"WHERE = {name!r}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "image"), *sys.path])
    assert arguments.load_drafter("drafter_of_two:WHERE", str(tmp_path / "mounted")) == "mounted"


BROKEN = [
    ("nothing", "the drafter is 'nothing': write module:attribute"),
    (":Drafter", "write module:attribute"),
    ("no_such_module:Drafter", "cannot be loaded: ModuleNotFoundError(\"No module named 'no_such_module'\")"),
    ("broken:Drafter", "cannot be loaded: ZeroDivisionError"),
    ("whole:Missing", "cannot be loaded: AttributeError"),
    ("whole:Needy", "cannot be loaded: TypeError"),
]


@pytest.mark.parametrize(("entry_point", "message"), BROKEN, ids=[row[0] for row in BROKEN])
def test_drafters_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry_point: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "whole.py").write_text("class Needy:\n    def __init__(self, size):\n        pass\n")
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    with pytest.raises(ArgumentsError) as error:
        arguments.load_drafter(entry_point, str(tmp_path))
    assert message in str(error.value)


def test_a_resource_manager_may_be_the_drafters_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object of the module, which both names reach; a message says which of the two could not be loaded."""
    (tmp_path / "shares.py").write_text("class Pool: pass\n\nPOOL = Pool()\n\nclass Drafter:\n    pool = POOL\n")
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    drafter: Any = arguments.load_drafter("shares:Drafter", str(tmp_path))
    assert arguments.load_drafter("shares:POOL", str(tmp_path), "resource manager") is drafter.pool
    with pytest.raises(ArgumentsError, match="the resource manager shares:NONE cannot be loaded"):
        arguments.load_drafter("shares:NONE", str(tmp_path), "resource manager")
