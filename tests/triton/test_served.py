"""The GPU benchmark's command, with the pair itself on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triton.harness import REPOSITORY_ROOT

pytestmark = pytest.mark.nightly

PATHS = ["tests", "operator", "images", "images/serving", "images/reference"]


def test_the_command_writes_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.gpu.served", "--numpy", "--streams", "1"]
    command += ["--cases", "k=4", "engine", "alone", "LLM API, k=4"]
    command += ["--seconds", "2", "--context", "50", "--max-tokens", "16", "--out", str(out)]
    path = os.pathsep.join(str(REPOSITORY_ROOT / each) for each in PATHS)
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, cwd=tmp_path)
    drafted, engine, alone, llm_api = json.loads(out.read_text())["rows"]
    assert drafted["tokens_per_second"] > 0 < engine["tokens_per_second"]
    assert 1 < drafted["accepted_length"] <= 5
    parts = drafted["round"]
    assert 0 < parts["draft_ms"] + parts["target_ms"] < parts["ms"], "one engine works at a time"
    assert parts["in_server_ms"] > 0
    assert engine["round"] is None
    assert alone["tokens_per_second"] > 0
    assert alone["tokens_a_chunk"] < 3, "one streaming call, and no calls of 16 tokens"
    assert 1 < llm_api["accepted_length"] <= 5
