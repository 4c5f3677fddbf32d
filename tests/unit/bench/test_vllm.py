"""The benchmark of vLLM behind Triton and called directly: what both get, and its tables."""

import argparse
from pathlib import Path

import pytest
import yaml

from bench.gpu.served import load
from bench.gpu.served.load import Chunk, Window
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.ways import SAMPLING
from bench.gpu.vllm import tables, ways
from bench.gpu.vllm.__main__ import KINDS, METHODS, TWO_ON_A_GPU, service
from support.services import parse
from tandem.api.roles import Role
from tandem_serving.llmapi.engines.vllm.sampling import fields
from tandem_serving.llmapi.request import LlmApiPrompt, LlmApiRequest
from triton import vllm_server


@pytest.mark.parametrize("kind", KINDS)
def test_called_directly_it_draws_as_behind_tandem(kind: str) -> None:
    """Without end tokens, which both take from the checkpoint."""
    case = KINDS[kind]
    (sent, *_) = load.requests([Prompt("def", (1, 2))], Window(1, 0.0, 1.0, 32))
    given = ways.sampling(case, sent)
    drawn = {**SAMPLING, "seed": sent.seed} if case.sampled else {}
    asked = LlmApiPrompt(0, "def", [1, 2], {"max_tokens": sent.tokens, **drawn})
    wanted = fields(asked, LlmApiRequest(()))
    assert given == {name: wanted[name] for name in given}
    assert {name for name in wanted if wanted[name]} - set(given) <= {"n", "stop_token_ids"}


@pytest.mark.parametrize("method", METHODS)
def test_arguments_are_the_operator_s(tmp_path: Path, method: str) -> None:
    options = argparse.Namespace(profile="vllm-26.08", arguments=TWO_ON_A_GPU, gpus=1, streams=[1, 64])
    text = service(options, method)
    assert parse(text).spec.serving.max_batch_size == 64
    made, variables = vllm_server.repository(tmp_path, text, {Role.TARGET: "/t", Role.DRAFT: "/d"})
    arguments = yaml.safe_load(made.with_name(f"{made.name}-llm_args.yaml").read_text())
    assert arguments["model"] == "/t"
    assert arguments.get("speculative_config", {}).get("method", "none") == method
    assert arguments["kv_cache_memory_bytes"] == TWO_ON_A_GPU["kv_cache_memory_bytes"]
    assert variables["VLLM_NO_USAGE_STATS"] == "1"


def test_a_record_s_tokens() -> None:
    record = {"answers": [{"sent": 1.0, "chunks": [[1.5, 1], [1.6, 0], [2.0, 3]]}, {"sent": 3.0, "chunks": []}]}
    assert ways.chunks(record) == [Chunk(1.0, 1.5, 1, True), Chunk(1.5, 2.0, 3, False)]


def test_ratios_are_of_means_and_to_no_draft() -> None:
    def row(method: str, way: str, speed: float, ttft: float) -> tables.Row:
        waits = {name: {"p50": value, "p99": value} for name, value in (("ttft_ms", ttft), ("itl_ms", 5.0))}
        case = {"kind": "greedy", "method": method, "way": way, "streams": 4, "accepted_length": 3.0}
        return {**case, "tokens_per_second": speed, **waits}

    rows = [row("none", tables.DIRECT, 100.0, 10.0), row("none", tables.TRITON, 99.0, 12.0)]
    rows += [row("ngram", tables.DIRECT, speed, 10.0) for speed in (100.0, 300.0)]
    rows += [row("ngram", tables.TRITON, 198.0, 13.0), row("draft_model", tables.DIRECT, 1.0, 1.0)]
    *_, none, ngram = tables.tables(rows).strip().splitlines()
    assert none == "| none | 4 | 100 | 99 | 0.990 | 1.00 | 10.0 / 12.0 | 5.0 / 5.0 | 3.00 |"
    assert ngram == "| ngram | 4 | 200 | 198 | 0.990 | 2.00 | 10.0 / 13.0 | 5.0 / 5.0 | 3.00 |"
