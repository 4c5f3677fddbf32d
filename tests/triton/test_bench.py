"""`tandem bench` as a process against the speculative BLS over the reference engine."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from triton import bls_client as bls
from triton.harness import TritonServer

BENCH = [sys.executable, "-m", "tandem", "bench"]
PROMPTS = bls.PAIR / "prompts.jsonl"
SHORT = ["--warm-up", "0.5", "--seconds", "2", "--repeats", "2", "--max-tokens", "16"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls.repository(tmp_path_factory.mktemp("repository"), "reference", max_draft_len=4, max_engine_rows=64)
    with TritonServer(made) as triton:
        yield triton


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_both_sides_at_each_load(server: TritonServer) -> None:
    done = bench(
        "--url", server.grpc_url, "--prompts", str(PROMPTS), *SHORT, "--streams", "1", "--streams", "3", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
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


def test_a_table_for_people(server: TritonServer) -> None:
    done = bench("--url", server.grpc_url, "--prompts", str(PROMPTS), *SHORT, "--streams", "1")
    header, row, verdict = [line for line in done.stdout.splitlines() if line.strip()]
    assert header.split()[:4] == ["streams", "tokens/s", "alone", "speed-up"]
    assert row.split()[0] == "1"
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
