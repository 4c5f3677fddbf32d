"""How far an engine's build is: by the tools' files and output, and over HTTP."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tandem_serving.prepare.build_progress import BuildProgress, serve


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(tmp_path: Path, clock: Clock) -> BuildProgress:
    for name in ("checkpoint", "engine"):
        (tmp_path / name).mkdir()
    return BuildProgress(tmp_path, ranks=4, layers=80, clock=clock)


def test_before_a_tool_begins(progress: BuildProgress) -> None:
    """Another pod may hold the folder's lock."""
    assert progress.as_json() | {"rank": 0} == {
        **{"phase": "Waiting", "rank": 0, "ranks": 4, "layer": 0, "layers": 80, "seconds": 0, "line": ""},
    }


def test_from_the_conversion_to_the_engine(progress: BuildProgress, clock: Clock) -> None:
    progress.start("convert_checkpoint.py")
    clock.now += 30
    progress.read("Loading weights: 15%|#5        | 12/80 [00:10<00:50,  1.2it/s]\n")
    (progress.partial / "checkpoint/rank0.safetensors").touch()
    seen = progress.as_json()
    assert (seen["phase"], seen["rank"], seen["layer"], seen["seconds"]) == ("Converting", 2, 12, 30)
    progress.start("trtllm-build")
    clock.now += 60
    for rank in range(3):
        (progress.partial / f"engine/rank{rank}.engine").touch()
    progress.read("[TRT-LLM] [I] Serializing engine to rank2.engine...\n")
    progress.read("\n")
    seen = progress.as_json()
    assert (seen["phase"], seen["rank"], seen["layer"], seen["seconds"]) == ("Building", 4, 0, 90)
    assert seen["line"] == "[TRT-LLM] [I] Serializing engine to rank2.engine..."
    (progress.partial / "engine/rank3.engine").touch()
    assert progress.as_json()["rank"] == 4, "no fifth of four"


@pytest.mark.parametrize(
    ("line", "layer", "reason"),
    [
        ("model.layers.12.mlp.gate_proj.weight", 13, "named from 0 on"),
        ("Converting layer 79", 80, "the last one"),
        ("layers 95 of another model", 80, "no more than there are"),
        ("100%|##########| 3/3 [00:01<00:00]", 0, "counts something else"),
        ("num_layers=80", 0, "a setting"),
        ("[TRT] [I] Engine generation completed", 0, "none"),
    ],
)
def test_which_layer_a_line_names(line: str, layer: int, reason: str, progress: BuildProgress) -> None:
    progress.start("convert_checkpoint.py")
    progress.read(line)
    assert progress.as_json()["layer"] == layer, reason


def test_over_http(progress: BuildProgress) -> None:
    port = serve(progress, 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=240) as reply:
        assert json.loads(reply.read())["phase"] == "Waiting"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=240)
    assert serve(progress, port) == 0, "a port that is taken ends no build"
