"""The LLM-API model over vLLM on the real Triton server: real drafts, verified by the real target."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from support import environments
from tandem_serving.boot import processes
from tandem_serving.boot.dead_models import STUB
from tandem_serving.llmapi import suspects
from triton import bls_client as bls
from triton import vllm_server
from triton.bls_client import PAIR, Response, ids, text
from triton.harness import TritonServer
from triton.llmapi_client import inputs, texts
from triton.openai_endpoint import NAME, OpenAiEndpoint
from triton.pod import Pod, ended
from triton.speculating import (
    stream,
    test_a_seed_is_reproducible_alone_and_with_others,
    test_acceptance_is_told,
    test_eight_at_once_equal_the_target_alone,
    test_greedy_equals_the_target_alone,
    test_log_probs_are_the_target_s,
    unary,
)
from triton.target_alone import TEXTS, TOKENIZER, TOKENS, alone, conformance, greedy
from triton.waits import counted, eventually, metric

__all__ = [
    "alone",
    "greedy",
    "test_a_seed_is_reproducible_alone_and_with_others",
    "test_acceptance_is_told",
    "test_eight_at_once_equal_the_target_alone",
    "test_greedy_equals_the_target_alone",
    "test_log_probs_are_the_target_s",
]
MENDED = """
import torch
from vllm.model_executor.models import registry
from vllm.plugins import load_general_plugins
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

def tell(when):
    for check in (another_process, expand, top_k):
        try:
            check()
        except Exception as error:
            print("at fault", when, check.__name__)

tell("before")
load_general_plugins()
tell("after")
"""
"""Says what is at fault, before and after plugins are loaded."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with vllm_server.server(tmp_path_factory.mktemp("vllm")) as made:
        yield made


@pytest.fixture(scope="module")
def target_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Tandem's engine in mode BLS."""
    folder = tmp_path_factory.mktemp("alone")
    with TritonServer(bls.repository(folder, "reference", max_draft_len=4, max_engine_rows=64)) as made:
        yield made


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


def test_what_the_plugin_mends() -> None:
    """Where a fault is gone without it, the mend can go."""
    python = environments.python(vllm_server.LOCK)
    done = subprocess.run(
        [python, "-c", MENDED],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **vllm_server.CONTAINER, "VLLM_PLUGINS": "tandem_vllm_cpu"},
        check=True,
        timeout=600,
    )
    found = [line.removeprefix("at fault ") for line in done.stdout.splitlines() if line.startswith("at fault ")]
    assert found == ["before another_process", "before expand", "before top_k"], done.stdout


def test_log_probs_of_a_prompt_are_those_that_its_tokens_had_when_they_were_generated(server: Pod) -> None:
    asked = {"max_tokens": TOKENS, "return_log_probs": True, "return_prompt_log_probs": True}
    whole = unary(server, inputs(TEXTS[0], **asked))
    streamed = stream(server, inputs(TEXTS[0], streaming=True, **asked))
    assert ["prompt_ids" in each for each in streamed] == [True] + [False] * (len(streamed) - 1)
    prompt = whole["prompt_ids"][0].tolist()
    assert prompt == TOKENIZER.encode(TEXTS[0]).ids
    again = np.array([prompt + ids([whole])], np.int32)
    tensors = inputs("", max_tokens=1, return_prompt_log_probs=True)
    del tensors["text_input"]
    tensors |= {"input_ids": again, "input_lengths": np.array([again.size], np.int32)}
    expected = [*whole["prompt_log_probs"][0], *whole["output_log_probs"][0]]
    assert unary(server, tensors)["prompt_log_probs"][0] == pytest.approx(expected, abs=1e-3)


def test_the_openai_endpoint_has_acceptance_and_log_probs(server: Pod) -> None:
    with OpenAiEndpoint(server, "LLMAPI", PAIR / "target") as endpoint, endpoint.client() as client:
        given: dict[str, Any] = {"model": NAME, "prompt": TEXTS[0], "max_tokens": 24, "temperature": 0}
        answer: Any = client.completions.create(**given, logprobs=0, echo=True)
        details, told = answer.usage.completion_tokens_details, answer.metrics["speculative_decoding"]
        rounds = told["acceptance_histogram"]
        assert len(rounds) == 5, "of four drafted tokens"
        assert sum(n * count for n, count in enumerate(rounds)) == details.accepted_prediction_tokens > 0
        assert told["num_draft_tokens"] == details.accepted_prediction_tokens + details.rejected_prediction_tokens
        first, *others = answer.choices[0].logprobs.token_logprobs
        assert (first, len(others)) == (None, answer.usage.total_tokens - 1)
        assert "".join(answer.choices[0].logprobs.tokens) == answer.choices[0].text
        *_, last = client.completions.create(**given, stream=True, stream_options={"include_usage": True})
        assert last.metrics["speculative_decoding"] == told


def processes_of(pod: Pod) -> list[int]:
    """Of vLLM, the EngineCore first: those that Triton's model has started."""
    assert pod._process
    family = list(processes.family(pod._process.pid))
    stubs = [pid for pid in family if processes.name(pid) == STUB]
    started = [pid for stub in stubs for pid in processes.family(stub) if pid != stub]
    return [pid for pid in started if b"VLLM::" in processes.read(pid, "cmdline")]


def gone(pids: list[int]) -> bool:
    return not any(processes.read(pid, "cmdline") for pid in pids)


LAST: dict[str, Any] = {"max_tokens": 200, "streaming": True}


def deaths(pod: Pod) -> list[int]:
    return list(suspects.read(pod.repository.parent / "assembled" / suspects.FILE).values())


def test_a_dead_worker_ends_the_pod(server: Pod) -> None:
    """Its requests, too; and the next container knows which ones they were."""
    core, *workers = processes_of(server)
    with bls.Stream(server.grpc_url, "tensorrt_llm_stream") as call:
        call.send(inputs(TEXTS[0], **LAST))
        call.receive()
        os.kill(workers[-1], signal.SIGKILL)
        with pytest.raises(InferenceServerException, match="send the request to another replica"):
            while not call.receive()[1]:
                pass
    assert ended(server, 240) == 1
    reported = json.loads(server.termination_log.read_text())["engineFailure"]
    assert (reported["model"], reported["reason"]) == ("vLLM", "EngineFailing")
    assert "died unexpectedly" in reported["message"], "vLLM's own words"
    eventually(lambda: gone([core, *workers]), "no process is left")
    assert deaths(server) == [1]


def test_a_pod_that_stops_ends_its_requests_and_leaves_no_process(server: Pod) -> None:
    """After the one that died; a request that ran there is answered now."""
    if server.code() is not None:
        server.stop()
        server.start()
    running = processes_of(server)
    with bls.Stream(server.grpc_url, "tensorrt_llm_stream") as call:
        call.send(inputs(TEXTS[0], **LAST))
        call.receive()
        server.terminate()
        while not call.receive()[1]:
            pass
    assert ended(server, 240) == 0
    eventually(lambda: gone(running), "no process is left")
    assert deaths(server) == []
