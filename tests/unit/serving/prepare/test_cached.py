"""A folder of the cache volume that is gone is said to be, before anything starts with it; no other is."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem_fetcher.cache import CachedFile, Entry, Manifest
from tandem_serving.boot import entrypoint
from tandem_serving.prepare import cached, preflight
from tandem_serving.prepare.engine_check import check_engines

KEY = "0123456789abcdef" * 2


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A volume with a model, as the fetcher leaves it, and an engine."""
    monkeypatch.setattr(cached, "CACHE", tmp_path / "cache")
    model = tmp_path / "cache" / "models" / KEY
    (model / "1").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "1" / "model.safetensors").write_bytes(b"12345")
    files = (CachedFile("config.json", 2, ""), CachedFile("1/model.safetensors", 5, ""))
    Entry(model).complete(Manifest("hf://org/model", "0" * 40, files))
    engine = tmp_path / "cache" / "engines" / KEY / "engine"
    engine.mkdir(parents=True)
    (engine / "config.json").write_text("{}")
    return tmp_path / "cache"


MODEL, ENGINE = f"models/{KEY}", f"engines/{KEY}/engine"
# What happens to the volume, the folder that is asked for, and whether it is gone.
ROWS: dict[str, tuple[Callable[[Path], object], str, bool]] = {
    "a model that is whole": (lambda cache: None, MODEL, False),
    "an engine that is whole": (lambda cache: None, ENGINE, False),
    "a part of a model": (lambda cache: None, f"{MODEL}/1", False),
    "a volume that is empty": (lambda cache: shutil.rmtree(cache / "models"), MODEL, True),
    "an engine on it": (lambda cache: shutil.rmtree(cache / "engines"), ENGINE, True),
    "a model that is on its way again": (lambda cache: (cache / MODEL / ".complete").unlink(), MODEL, True),
    "a file that is gone": (lambda cache: (cache / MODEL / "config.json").unlink(), MODEL, True),
    "one that is cut": (lambda cache: (cache / MODEL / "1/model.safetensors").write_bytes(b""), MODEL, True),
    "a list that is cut": (lambda cache: (cache / MODEL / ".complete").write_text("{"), MODEL, True),
    "an engine without its configuration": (lambda cache: (cache / ENGINE / "config.json").unlink(), ENGINE, True),
    "somebody's own folder": (lambda cache: None, "models/mine", False),
    "a folder outside": (lambda cache: None, f"../other/{MODEL}", False),
}


@pytest.mark.parametrize(("change", "path", "gone"), ROWS.values(), ids=ROWS)
def test_what_is_gone(cache: Path, change: Callable[[Path], object], path: str, gone: bool) -> None:
    change(cache)
    folder = cache.parent / "other" / MODEL if path.startswith("..") else cache / path
    if not gone:
        cached.check(folder)
        return
    with pytest.raises(cached.Gone, match=f"/{'/'.join(path.split('/')[:2])} is gone from the cache volume"):
        cached.check(folder)


PLANS = [
    ({"target": {"path": MODEL}}, True),
    ({"target": {"path": "/elsewhere", "tokenizer": MODEL}}, True),
    ({"target": {"path": "/elsewhere"}, "draft": {"path": MODEL}}, True),
    ({"heads": {"path": MODEL}}, True),
    ({"engines": {"target": {"path": ENGINE}}}, True),
    ({"target": {"path": "/elsewhere"}}, False),
]


@pytest.mark.parametrize(("plan", "gone"), PLANS, ids=[json.dumps(row[0])[:60] for row in PLANS])
def test_a_server_does_not_start_without_what_it_serves(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: dict[str, object], gone: bool
) -> None:
    """Its last words are the pod's termination message, which the operator reads: unit/operator/test_lost.py."""
    shutil.rmtree(cache)
    text = json.dumps({"preflight": plan})
    for name in (MODEL, ENGINE):
        text = text.replace(f'"{name}"', f'"{cache}/{name}"')
    (tmp_path / "launch.json").write_text(text)
    assert entrypoint.main(["serve", "--revision", str(tmp_path), "--models", str(tmp_path / "repository")]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("cannot serve: ")
    assert ("is gone from the cache volume" in last) is gone


def test_the_preflight_says_so_too(cache: Path, tmp_path: Path) -> None:
    shutil.rmtree(cache)
    checks = preflight.verdict({"target": {"path": str(cache / MODEL)}}, tmp_path)["checks"]
    assert {each["type"]: each["reason"] for each in checks}["ModelsReady"] == "ModelGone"
    check = check_engines({"engines": {"target": {"path": str(cache / ENGINE)}}})
    assert (check.status, check.reason) == ("False", "EngineGone")
    assert "is gone from the cache volume" in check.message
