"""The LLM-API model over vLLM on the real Triton server: real drafts, verified by the real target."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from support import environments
from triton import bls_client as bls
from triton import vllm_server
from triton.bls_client import Array, Response, ids, text
from triton.harness import TritonServer
from triton.llmapi_client import inputs, texts
from triton.target_alone import TEXTS, TOKENS, conformance, greedy
from triton.waits import counted, metric

__all__ = ["greedy"]
MENDED = """
import torch
from vllm.model_executor.models import registry
from vllm.utils import cpu_triton_utils
from vllm.v1.sample.ops import topk_topp_sampler

def another_process():
    registry.subprocess = None
    registry._run_in_subprocess(int)

def expand():
    made = torch.full((6,), -1.0)
    cpu_triton_utils._expand_kernel_impl(made, torch.tensor([0.5, 0.0, 1.5]), torch.tensor([2, 5, 6]), 0, 1)
    assert made.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0, 1.5]

def top_k():
    topk_topp_sampler.apply_top_k_only(torch.ones(0, 4), torch.ones(0, dtype=torch.int32))

for check in (another_process, expand, top_k):
    try:
        check()
    except Exception as error:
        print(check.__name__, type(error).__name__)
"""
"""Says what is at fault."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with vllm_server.server(tmp_path_factory.mktemp("vllm")) as made:
        yield made


@pytest.fixture(scope="module")
def target_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Tandem's engine in mode BLS."""
    folder = tmp_path_factory.mktemp("alone")
    with TritonServer(bls.repository(folder, "reference", max_draft_len=4, max_engine_rows=64)) as made:
        yield made


def stream(server: TritonServer, tensors: dict[str, Array]) -> list[Response]:
    return bls.stream(server.grpc_url, tensors, "tensorrt_llm_stream")


def unary(server: TritonServer, tensors: dict[str, Array]) -> Response:
    return bls.unary(server.grpc_url, tensors, "tensorrt_llm")


def test_greedy_equals_the_target_alone(server: TritonServer, greedy: list[list[int]]) -> None:
    streamed = stream(server, inputs(TEXTS[0], max_tokens=TOKENS, streaming=True))
    answer = unary(server, inputs(TEXTS[0], max_tokens=TOKENS))
    assert ids(streamed) == ids([answer]) == greedy[0]
    assert text(streamed) == text([answer])
    assert len(streamed) > 1
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(stream, server, inputs(t, max_tokens=TOKENS, streaming=True)) for t in TEXTS]
        assert [ids(call.result()) for call in calls] == greedy


def test_acceptance_is_told(server: TritonServer) -> None:
    answer = unary(server, inputs(*TEXTS, max_tokens=TOKENS))
    drafted, accepted = answer["total_draft_tokens"], answer["total_accepted_draft_tokens"]
    assert (accepted > 0).all()
    assert (accepted <= drafted).all()
    assert answer["avg_decoded_tokens_per_iter"].mean() > 1.5, "tokens a pass of the target"


def test_its_scheduler_s_figures_are_metrics(server: TritonServer) -> None:
    """Those by position add up to all."""
    answers = list[Response]()

    def ask() -> list[float]:
        answers.append(unary(server, inputs(*TEXTS, max_tokens=TOKENS)))
        return [float(answers[-1][f"total_{name}"].sum()) for name in ("accepted_draft_tokens", "draft_tokens")]

    counted(server, [f"tandem_spec_decode_num_{name}_tokens_total" for name in ("accepted", "draft")], ask)
    position = 'tandem_spec_decode_num_accepted_tokens_per_pos_total{position="%d"}'
    by_position = [metric(server, position % number) for number in range(4)]
    assert sum(by_position) == metric(server, "tandem_spec_decode_num_accepted_tokens_total")
    assert by_position == sorted(by_position, reverse=True)


def test_a_seed_is_reproducible_alone_and_with_others(server: TritonServer) -> None:
    """Fails without the mend of `expand`: temperatures of drafted tokens are whatever memory held."""
    drawn = inputs(TEXTS[1], top_p=0.95, temperature=1.2, seed=1)
    alone = ids([unary(server, drawn)])
    with ThreadPoolExecutor(4) as threads:
        seeds = [
            threads.submit(unary, server, inputs(TEXTS[1], top_p=0.95, temperature=1.2, seed=s)) for s in (1, 2, 3)
        ]
        together = [ids([each.result()]) for each in seeds]
    assert together[0] == alone
    assert together[1] != alone


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"top_k": 5, "temperature": 1.0, "seed": 3}, "vLLM 0.32 dies of it in a pass without drafts"),
        ({"best_of": 2, "temperature": 1.0}, "vLLM has no best_of: of n, the likeliest"),
        ({"repetition_penalty": 1.2, "frequency_penalty": 0.5}, "penalties"),
        ({"min_tokens": 8}, "min_tokens"),
        ({"bad": texts(" return")}, "words that may not come"),
        ({"seed": (1 << 64) - 1, "temperature": 1.0}, "torch takes 63 bits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parameters_that_it_takes(server: TritonServer, asked: dict[str, Any], reason: str) -> None:
    assert len(ids([unary(server, inputs(TEXTS[0], max_tokens=8, **asked))])) == 8, reason


def test_a_guide_is_followed_while_it_drafts(server: TritonServer) -> None:
    guide = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "(yes|no), [0-9]{3}"}
    answer = text([unary(server, inputs(TEXTS[0], max_tokens=16, **guide))])
    assert answer[:4] in ("yes,", "no, ")
    assert answer.split(", ")[1].isdigit()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"min_p": 0.1, "temperature": 1.0},
            "sampling_param_min_p is not supported: vLLM 0.32.0 .* refuses it with speculation",
        ),
        ({"guided_decoding_guide_type": "regex", "guided_decoding_guide": "("}, "the engine refuses the request"),
    ],
    ids=["min_p", "a guide that is none"],
)
def test_what_it_refuses(server: TritonServer, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InferenceServerException, match=says):
        unary(server, inputs("def f", **asked))


def test_conformance(server: TritonServer, target_alone: TritonServer, tmp_path: Path) -> None:
    urls = ("--url", server.grpc_url, "--against-url", target_alone.grpc_url)
    # Penalties of vLLM count what was generated, not the prompt: they show where that is longer.
    code, found = conformance(tmp_path / "report", *urls, "--max-tokens", "48")
    assert {name: case["detail"] for name, case in found.items() if case["outcome"] == "broke"} == {}
    assert code == 0


@pytest.mark.parametrize(
    ("plugins", "faults"),
    [("", ["another_process", "expand", "top_k"]), ("tandem_vllm_cpu", [])],
    ids=["as it is", "mended"],
)
def test_what_the_plugin_mends(plugins: str, faults: list[str]) -> None:
    """Where a fault is gone without it, the mend can go."""
    python = environments.python(vllm_server.LOCK)
    load = "from vllm.plugins import load_general_plugins; load_general_plugins()\n"
    done = subprocess.run(
        [python, "-c", load + MENDED],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **vllm_server.CONTAINER, "VLLM_PLUGINS": plugins},
        check=True,
        timeout=600,
    )
    found = [
        line.split()[0]
        for line in done.stdout.splitlines()
        if line.startswith(("another_process", "expand", "top_k"))
    ]
    assert found == faults, done.stdout
