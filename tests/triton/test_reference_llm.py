"""The LLM-API model over reference_llm on the real Triton server: real drafts, verified by the real target."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from triton.bls_client import PAIR
from triton.harness import ServerError, TritonServer
from triton.llmapi_client import inputs, repository
from triton.speculating import (
    test_a_seed_is_reproducible_alone_and_with_others,
    test_acceptance_is_told,
    test_eight_at_once_equal_the_target_alone,
    test_greedy_equals_the_target_alone,
    test_log_probs_are_the_target_s,
    unary,
)
from triton.target_alone import TEXTS, TOKENS, alone, greedy

__all__ = [
    "alone",
    "greedy",
    "test_a_seed_is_reproducible_alone_and_with_others",
    "test_acceptance_is_told",
    "test_eight_at_once_equal_the_target_alone",
    "test_greedy_equals_the_target_alone",
    "test_log_probs_are_the_target_s",
]


def draft(length: int) -> dict[str, Any]:
    return {"decoding_type": "Draft_Target", "max_draft_len": length, "speculative_model": str(PAIR / "draft")}


CONFIGS: dict[str, dict[str, Any]] = {
    "k=1": draft(1),
    "k=4": draft(4),
    "k=8": draft(8),
    "n-grams": {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 3, "is_use_oldest": False},
}


@pytest.fixture(scope="module", params=CONFIGS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    args = {"speculative_config": CONFIGS[request.param]}
    made = repository(tmp_path_factory.mktemp("llm") / "models", args, engine="Tandem")
    with TritonServer(made) as server:
        yield server


once = pytest.mark.parametrize("server", ["k=4"], indirect=True)
"""What does not depend on how it drafts."""


def test_metrics_show_speculation(server: TritonServer) -> None:
    def families() -> dict[str, float]:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        lines = dict(line.rsplit(" ", 1) for line in server.metrics().splitlines() if not line.startswith("#"))
        return {name: float(lines.get(f"tandem_spec_decode_num_{name}_total", 0)) for name in names}

    unary(server, inputs(TEXTS[0], max_tokens=TOKENS))
    deadline = time.monotonic() + 240
    while not all((told := families()).values()):
        assert time.monotonic() < deadline, f"not all families count: {told}"
        time.sleep(0.2)
    assert told["accepted_tokens"] <= told["draft_tokens"]


def generate(server: TritonServer, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tandem", "generate", "--url", server.grpc_url, "-p", TEXTS[0], *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@once
def test_tandem_generate_streams_from_it(server: TritonServer, greedy: list[list[int]]) -> None:
    done = generate(server, "--max-tokens", str(TOKENS), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["output_ids"] == greedy[0]
    assert 0 < record["accepted_draft_tokens"] <= record["draft_tokens"]
    assert record["mean_accepted_length"] == pytest.approx(
        1 + record["accepted_draft_tokens"] / record["target_passes"]
    )


@once
@pytest.mark.parametrize("option", ["--compare", "--num-draft-tokens=2"])
def test_tandem_generate_says_what_mode_llmapi_cannot_do(server: TritonServer, option: str) -> None:
    done = generate(server, option)
    assert done.returncode == 1
    assert "serves mode LLMAPI, whose engine decides itself" in done.stderr


@once
def test_what_the_engine_has_not_is_refused_by_name(server: TritonServer) -> None:
    with pytest.raises(
        InferenceServerException, match="the engine refuses the request: the reference engine has no min_p"
    ):
        unary(server, inputs("def f", min_p=0.1))


def test_an_argument_that_it_does_not_know_is_named(tmp_path: Path) -> None:
    made = repository(tmp_path / "models", {"kv_cache_config": {}}, engine="Tandem")
    with (
        pytest.raises(ServerError, match="kv_cache_config is not an argument that reference_llm knows"),
        TritonServer(made),
    ):
        pass


@once
def test_bench_asks_for_a_service_to_compare_with(server: TritonServer) -> None:
    prompts = str(PAIR / "prompts.jsonl")
    command = [sys.executable, "-m", "tandem", "bench", "--url", server.grpc_url, "--prompts", prompts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "--against" in done.stderr
