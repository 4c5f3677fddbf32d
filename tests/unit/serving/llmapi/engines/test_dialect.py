"""The one place that knows TensorRT-LLM's versions, and that the stand-in has the signatures of the real package."""

import dataclasses
import inspect
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from reference_llm.executor.result import CompletionOutput
from reference_llm.sampling_params import GuidedDecodingParams
from tandem_serving.llmapi.chunks import RequestMetrics
from tandem_serving.llmapi.engines.tensorrt_llm import dialect
from tandem_serving.llmapi.engines.tensorrt_llm.engine import _progress, first_line
from triton.stand_in_tensorrt_llm import tensorrt_llm
from triton.stand_in_tensorrt_llm.tensorrt_llm.executor.request import LoRARequest
from triton.stand_in_tensorrt_llm.tensorrt_llm.executor.result import RequestOutput

SIGNATURES = yaml.safe_load((Path(__file__).parents[4] / "data/tensorrt_llm_signatures.yaml").read_text())
STAND_IN: dict[str, Any] = {
    "LLM.__init__": tensorrt_llm.LLM.__init__,
    "LLM.generate_async": tensorrt_llm.LLM.generate_async,
    "LLM.shutdown": tensorrt_llm.LLM.shutdown,
    "LLM.get_stats_async": tensorrt_llm.LLM.get_stats_async,
    "SamplingParams": tensorrt_llm.SamplingParams,
    "GuidedDecodingParams": GuidedDecodingParams,
    "LoRARequest": LoRARequest,
    "RequestOutput.abort": RequestOutput.abort,
    "RequestOutput.aborted": RequestOutput.aborted,
    "CompletionOutput": CompletionOutput,
}


def parameters(function: Any) -> dict[str, Any]:
    """Names and defaults; a dataclass' list is made anew, so it stands as []."""
    made = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            default = "required"
        elif repr(default) == "<factory>":
            default = []
        made[name] = default
    return made


@pytest.mark.parametrize("version", ["older", "newer"])
@pytest.mark.parametrize("name", STAND_IN)
def test_the_stand_in_takes_nothing_that_the_real_package_does_not(name: str, version: str) -> None:
    real = SIGNATURES[name][version]
    for parameter, default in parameters(STAND_IN[name]).items():
        assert parameter in real, f"{name} has no {parameter} in the {version} line"
        assert real[parameter] == default, parameter


def test_every_recorded_signature_is_compared() -> None:
    assert set(SIGNATURES) == set(STAND_IN)


def metrics(draft_tokens: int = 0, accepted: int = 0, first_token: timedelta = timedelta(seconds=2)) -> Any:
    """The attributes of RequestPerfMetrics that are read."""
    return SimpleNamespace(
        kv_cache_metrics=SimpleNamespace(
            num_reused_blocks=1,
            num_missed_blocks=2,
            num_new_allocated_blocks=2,
            num_total_allocated_blocks=3,
            kv_cache_hit_rate=0.25,
        ),
        timing_metrics=SimpleNamespace(
            arrival_time=timedelta(microseconds=1),
            first_scheduled_time=timedelta(seconds=1),
            first_token_time=first_token,
            last_token_time=timedelta(days=20, microseconds=5),
        ),
        speculative_decoding=SimpleNamespace(
            acceptance_rate=0.0, total_accepted_draft_tokens=accepted, total_draft_tokens=draft_tokens
        ),
    )


def result(perf: Any, **attributes: Any) -> Any:
    return SimpleNamespace(outputs=[CompletionOutput(0, request_perf_metrics=perf)], **attributes)


def test_zero_drafted_tokens_are_not_told() -> None:
    told = dialect.metrics(result(metrics(), avg_decoded_tokens_per_iter=2.5))
    assert (told.tokens_per_iteration, told.draft_tokens, told.accepted_draft_tokens) == (2.5, None, None)


def test_drafted_tokens_are_told() -> None:
    told = dialect.metrics(result(metrics(12, 5), avg_decoded_tokens_per_iter=2.5))
    assert (told.draft_tokens, told.accepted_draft_tokens) == (12, 5)


@pytest.mark.parametrize(
    "given", [[-0.5, -2.0], [{5: SimpleNamespace(logprob=-0.5)}, {6: SimpleNamespace(logprob=-2.0), 7: None}]]
)
def test_log_probs_of_the_tokens_by_either_shape(given: Any) -> None:
    assert dialect.log_probs(SimpleNamespace(token_ids=[5, 6], logprobs=given)) == [-0.5, -2.0]
    assert dialect.log_probs(SimpleNamespace(token_ids=[5, 6], logprobs=None)) == []


def test_a_version_without_figures() -> None:
    assert dialect.metrics(result(None)) == RequestMetrics()


def test_times_are_exact_nanoseconds_and_left_out_before_they_come() -> None:
    perf = dialect.metrics(result(metrics(first_token=timedelta(0)))).perf
    assert perf == {
        "kv_cache_reused_block": 1,
        "kv_cache_missed_block": 2,
        "kv_cache_alloc_new_blocks": 2,
        "kv_cache_alloc_total_blocks": 3,
        "kv_cache_hit_rate": 0.25,
        "arrival_time_ns": 1000,
        "first_scheduled_time_ns": 1_000_000_000,
        "last_token_time_ns": 20 * 86400 * 1_000_000_000 + 5000,
    }


class Executor:
    def __init__(self, dead: bool) -> None:
        self.dead = dead

    def is_shutdown(self) -> bool:
        return self.dead


HEALTH = [
    ("1.2, running", SimpleNamespace(_executor=Executor(False)), True),
    ("1.2, shut down", SimpleNamespace(_executor=Executor(True)), False),
    ("1.2, gone", SimpleNamespace(_executor=None), False),
    ("1.3, by its own check", SimpleNamespace(_executor=Executor(False), _check_health=lambda: False), False),
    ("1.3, running", SimpleNamespace(_check_health=lambda: True), True),
]


@pytest.mark.parametrize(("reason", "llm", "healthy"), HEALTH, ids=[row[0] for row in HEALTH])
def test_health(reason: str, llm: Any, healthy: bool) -> None:
    assert dialect.healthy(llm) is healthy


def test_arguments_without_the_package_s_help_are_the_file_s() -> None:
    given = {"model": "m", "speculative_config": {"decoding_type": "NGram"}}
    assert dialect.llm_arguments(given, "tensorrt_llm") == given


@dataclasses.dataclass
class Traced(RuntimeError):
    """As TensorRT-LLM's CppExecutorError: a trace is part of its text."""

    def __str__(self) -> str:
        return "out of memory\nStack trace:\nTraceback (most recent call last)"


def test_no_trace_goes_to_a_client() -> None:
    assert first_line(Traced()) == "out of memory"
    assert first_line(ValueError()) == "ValueError"


@pytest.mark.parametrize(("reason", "expected"), [("stop", "stop"), ("length", "length"), (None, "cancelled")])
def test_what_ends_without_a_reason_is_no_end_of_text(reason: str | None, expected: str) -> None:
    """TensorRT-LLM leaves the reason out of what it gave up before the end."""
    best = SimpleNamespace(token_ids=[5], finish_reason=reason, stop_reason=None, cumulative_logprob=None)
    result = SimpleNamespace(outputs=[best], finished=True)
    assert _progress(result).finish_reason == expected
