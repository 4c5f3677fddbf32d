"""Models that are split over ranks, which are processes on the CPU here, where torch is installed (CI has none)."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from reference_engine.config import CheckpointError  # noqa: E402
from reference_engine.torch_backend import checkpoints, loading, splitting  # noqa: E402
from reference_engine.torch_backend.splitting import Part  # noqa: E402
from unit.torch_backend import split_ranks  # noqa: E402
from unit.torch_backend.models import PAIR, stock  # noqa: E402

RANKS = 2
KINDS = [kind for kind in checkpoints.TRIED if kind not in checkpoints.WHOLE]
TOLERANCE = 1e-4  # absolute, float32: sums over ranks are rounded in another order
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def logits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where each rank has written its own."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(split_ranks.rank, (RANKS, KINDS, str(folder)), nprocs=RANKS)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_has_the_whole_model_s_logits(logits: Path, kind: str) -> None:
    for rank in range(RANKS):
        found = np.load(logits / f"{kind}-{rank}.npz")
        assert np.abs(found["whole"]).max() > 0.1, "flat logits show nothing"
        np.testing.assert_allclose(found["split"], found["whole"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_has_its_share_of_the_weights(kind: str) -> None:
    whole, split = stock(kind), stock(kind)
    splitting.cut(split, Part(1, RANKS, "cpu"))
    sizes = [{name: each.numel() for name, each in _layers(module)} for module in (whole, split)]
    copied = sum(size for name, size in sizes[0].items() if "norm" in name)
    once = sum(size for name, size in sizes[0].items() if name.endswith(("o_proj.bias", "c_proj.bias")))
    assert sum(sizes[1].values()) == (sum(sizes[0].values()) - copied - once) // RANKS + copied


def _layers(module: Any) -> Any:
    return module.base_model.layers.named_parameters()


@pytest.mark.parametrize("kind", checkpoints.WHOLE)
def test_what_transformers_does_not_split_by_columns_and_rows_is_refused(kind: str) -> None:
    with pytest.raises(CheckpointError, match="cannot be split over GPUs"):
        splitting.cut(stock(kind), Part(0, RANKS, "cpu"))


def _lead(what: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", split_ranks.__name__, what, str(folder)]
    environment = {**os.environ, **NO_GPU, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ends(pid: int) -> bool:
    """Whether the process is gone within some seconds."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_two_ranks_write_the_golden_text() -> None:
    out, errors = _lead("text", PAIR / "target").communicate(timeout=240)
    found = dict(line.split(" ", 1) for line in out.splitlines())
    assert found, errors
    expected = [int(each) for each in re.findall(r"\d+", found["EXPECTED"])]
    assert found["GREEDY"] == str(expected)
    assert found["COPIED"] == str(expected)
    assert found["VERIFIED"] == str(expected[:4])


def test_ranks_end_together() -> None:
    for lost in ("follower", "leader"):
        process = _lead("wait", PAIR / "target")
        assert process.stdout
        assert process.stdout.readline().startswith("READY")
        [follower] = _children(process.pid)
        os.kill(follower if lost == "follower" else process.pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=240)
        if lost == "follower":
            assert process.returncode == 1
            assert "rank 1 of the model ended with code -9: this process ends, too" in errors
        assert _ends(follower), f"the follower outlives a lost {lost}"


def test_what_stops_a_follower_is_the_leader_s_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_share", lambda job, rank: None)  # the leader's own goes well
    monkeypatch.setattr(checkpoints, "check", lambda folder, gpus=1: None)
    with pytest.raises(CheckpointError, match=r"rank 1, on GPU 1: cannot read the checkpoint in .*absent"):
        loading.load(tmp_path / "absent", loading.Sizes(2, 64, 64), 0, (0, 1))
