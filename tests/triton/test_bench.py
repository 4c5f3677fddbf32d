"""`tandem bench` as a process against the speculative BLS over the reference engine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triton import bls_client as bls
from triton.harness import TritonServer

BENCH = [sys.executable, "-m", "tandem", "bench"]
PROMPTS = bls.PAIR / "prompts.jsonl"
SHORT = ["--warm-up", "0.3", "--seconds", "3", "--repeats", "2", "--max-tokens", "8"]
"""Windows in which a busy machine, too, ends a request."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    """What it prints, and writes as JSON."""
    folder: Path = tmp_path_factory.mktemp("bench")
    made = bls.repository(folder / "models", "reference", max_draft_len=4, max_engine_rows=64)
    with TritonServer(made) as server:
        where = ("--url", server.grpc_url, "--prompts", str(PROMPTS), "--json", str(folder / "json"))
        done = bench(*where, *SHORT, "--streams", "1", "--streams", "3")
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "json").read_text())


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_both_sides_at_each_load(measured: tuple[Any, dict[str, Any]]) -> None:
    _, found = measured
    assert [level["streams"] for level in found["levels"]] == [1, 3]
    for level in found["levels"]:
        ours, alone = level["speculative"], level["alone"]
        assert ours["requests"] > 0
        assert alone["requests"] > 0
        assert 0.2 < ours["acceptanceRate"] <= 1
        assert 1 < ours["meanAcceptedLength"] <= 5
        assert (alone["acceptanceRate"], alone["meanAcceptedLength"]) == (None, None)
        assert 0 < alone["timeToFirstToken"] < 60
        assert 0 < ours["interTokenLatency"] < 60
        ratios = sorted(level["speedups"])
        assert len(ratios) == 2
        assert ratios[0] <= level["speedup"] <= ratios[1]
    assert found["verdict"]


def test_a_table_for_people(measured: tuple["subprocess.CompletedProcess[str]", Any]) -> None:
    done, _ = measured
    header, *rows, verdict = [line for line in done.stdout.splitlines() if line.strip()]
    assert header.split()[:4] == ["streams", "tokens/s", "alone", "speed-up"]
    assert [row.split()[0] for row in rows] == ["1", "3"]
    assert "load" in verdict
    assert "1 streams, 2 of 2: the target alone" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--url", "127.0.0.1:1"], 2, "--prompts FILE"),
        (["--prompts", str(PROMPTS)], 2, "the name of a service or --url"),
        (["--url", "127.0.0.1:1", "--prompts", str(PROMPTS), "--record"], 2, "--record needs the service's name"),
        (["--url", "127.0.0.1:1", "--prompts", str(PROMPTS)], 1, "no Triton server answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_measured(arguments: list[str], code: int, says: str) -> None:
    done = bench(*arguments)
    assert done.returncode == code
    assert says in " ".join(done.stderr.replace("│", " ").split())
