"""Requests as vLLM's SamplingParams, and its statistics: vLLM itself runs in tests/triton/test_vllm.py."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_serving.checkpoint import ModelLimits
from tandem_serving.llmapi.arguments import ArgumentsError
from tandem_serving.llmapi.chunks import RequestMetrics
from tandem_serving.llmapi.engines.vllm import ENGINE, engine, errors, names, sampling
from tandem_serving.llmapi.engines.vllm.statistics import Statistics
from tandem_serving.llmapi.request import GUIDES, Guide, LlmApiPrompt, LlmApiRequest
from tandem_serving.llmapi.statistics import EngineState, Speculation

GREEDY: dict[str, Any] = {
    **{"max_tokens": 4, "temperature": 0.0, "n": 1, "stop_token_ids": [], "logprobs": None, "prompt_logprobs": None},
    "detokenize": False,
}
DRAWN = {name: value for name, value in GREEDY.items() if name != "temperature"}


def prompt(sent: dict[str, Any], **changes: Any) -> LlmApiPrompt:
    return LlmApiPrompt(0, "a", [97], {"max_tokens": 4, **sent}, **changes)


@pytest.mark.parametrize(
    ("sent", "fields", "reason"),
    [
        ({}, GREEDY, "vLLM would take temperature 1"),
        ({"temperature": 0.0, "top_p": 0.9, "seed": 3}, GREEDY, "greedy draws nothing"),
        ({"top_k": 1}, GREEDY, "of one"),
        ({"top_p": 0.9}, {**DRAWN, "top_p": 0.9}, "temperature 1"),
        ({"temperature": 0.5, "top_k": 7}, {**DRAWN, "temperature": 0.5, "top_k": 7}, "its own names"),
        ({"top_p": 0.9, "seed": (1 << 64) - 1}, {**DRAWN, "top_p": 0.9, "seed": (1 << 63) - 1}, "63 bits"),
        ({"top_k": 5, "best_of": 2}, {**DRAWN, "top_k": 5, "n": 2, "logprobs": 0}, "the likeliest of n"),
        ({"best_of": 2}, {**GREEDY, "logprobs": 0}, "vLLM refuses several that are the same"),
        ({"bad": ["x"], "min_tokens": 2}, {**GREEDY, "bad_words": ["x"], "min_tokens": 2}, "its own names"),
    ],
)
def test_fields(sent: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    assert sampling.fields(prompt(sent), LlmApiRequest(())) == fields, reason


def test_ends_are_the_engine_s_to_stop_at_and_stop_words_are_not() -> None:
    asked = prompt({}, end_ids=frozenset((2, 0)), stop_ids={7: "<|im_end|>"}, stop_words=("x", "<|im_end|>"))
    made = sampling.fields(asked, LlmApiRequest((), cumulative_logprob=True))
    assert made == {**GREEDY, "stop_token_ids": [0, 2, 7], "logprobs": 0}


def test_log_probs_are_those_of_the_tokens() -> None:
    made = sampling.fields(prompt({}), LlmApiRequest((), log_probs=True, prompt_log_probs=True))
    assert made == {**GREEDY, "logprobs": 0, "prompt_logprobs": 0}
    by_token = [{5: SimpleNamespace(logprob=-0.5)}, {7: SimpleNamespace(logprob=-1), 6: SimpleNamespace(logprob=-2)}]
    assert engine.chosen([5, 6], by_token) == [-0.5, -2.0]


def test_every_guide_has_its_field() -> None:
    assert {kind: sampling.guided(Guide(kind, "x")) for kind in GUIDES} == {
        "json": {"json_object": True},
        "json_schema": {"json": "x"},
        "regex": {"regex": "x"},
        "ebnf_grammar": {"grammar": "x"},
        "structural_tag": {"structural_tag": "x"},
    }


def told(running: int, **more: Any) -> SimpleNamespace:
    state = {"num_waiting_reqs": 0, "kv_cache_usage": 0.25, "spec_decoding_stats": None}
    return SimpleNamespace(num_running_reqs=running, **{**state, **more})


def test_statistics_add_up_until_they_are_taken() -> None:
    statistics = Statistics(blocks=40)
    assert statistics.take() == EngineState(0, 40, 0)
    drafts = [
        SimpleNamespace(num_drafts=2, num_draft_tokens=8, num_accepted_tokens_per_pos=[2, 1, 0, 0]),
        SimpleNamespace(num_drafts=1, num_draft_tokens=4, num_accepted_tokens_per_pos=[1, 1, 1, 0]),
    ]
    preempted = SimpleNamespace(num_preempted_reqs=1)
    statistics.record(told(3, spec_decoding_stats=drafts[0]), preempted, mm_cache_stats=None, engine_idx=0)
    statistics.record(told(2, spec_decoding_stats=drafts[1], num_waiting_reqs=1), None)
    statistics.record(None, preempted)
    assert statistics.take() == EngineState(2, 40, 10, 1, 2, Speculation(3, 12, (3, 2, 1, 0)))
    assert statistics.take() == EngineState(2, 40, 10, 1), "counted once"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, RequestMetrics()),  # an older version
        (([0, 0, 0], 0), RequestMetrics()),  # it has not drafted
        (([1, 0, 2], 5), RequestMetrics(1 + 4 / 3, 5, 4, rounds=(1, 0, 2))),
    ],
)
def test_its_sequences_say_how_many_drafts_were_accepted(
    told: tuple[list[int], int] | None, expected: RequestMetrics
) -> None:
    assert engine.acceptance(told and SimpleNamespace(histogram=told[0], num_draft_tokens=told[1])) == expected


WORKER = "tandem-error 100.5 WorkerProc hit an exception.\nTraceback\n  File x\nRuntimeError: CUDA error\n\n"
CORE = "tandem-error 100.7 EngineCore encountered a fatal error.\nTraceback\nRuntimeError: Worker failed, see above\n"


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        (WORKER + CORE, "RuntimeError: CUDA error", "the first of those that follow each other"),
        ("tandem-error 9.0 An old one\n" + CORE, "RuntimeError: Worker failed, see above", "not one of long ago"),
        ("tandem-error 101.0 Worker died\n", "Worker died", "one line"),
        ("tandem-error 9.0 An old one\n", "", "none"),
        ("", "", "none"),
    ],
)
def test_the_error_that_ended_it(text: str, expected: str, reason: str) -> None:
    assert errors.first_since(text, 100.0) == expected, reason


@pytest.mark.parametrize(
    ("method", "folder", "linked"),
    [
        ("draft_model", "Qwen3-8B_eagle3", True),
        ("medusa", "heads-DFlash", True),
        ("mlp_speculator", "dspark", True),
        ("draft_model", "eagle-draft", True),
        ("draft_model", "draft", False),
        ("eagle3", "Qwen3-8B_eagle3", False),
        ("dspark", "dspark", False),
        (None, "Qwen3-8B_eagle3", False),  # the user leaves it to vLLM
    ],
)
def test_names_of_folders_do_not_decide_the_method(
    tmp_path: Path, method: str | None, folder: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "models" / folder).mkdir(parents=True)
    draft = str(tmp_path / "models" / folder)
    config = {"model": draft, "num_speculative_tokens": 4, **({"method": method} if method else {})}
    for _ in ("the dry run", "the start"):
        made = names.neutral({"model": "/t", "speculative_config": config})
        given = made["speculative_config"]["model"]
        assert Path(given).resolve() == Path(draft).resolve()
        assert (given != draft) == linked
    assert made == {"model": "/t", "speculative_config": {**config, "model": given}}


def test_names_of_the_target_do_not_decide_how_its_own_heads_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "dspark").mkdir()
    target = str(tmp_path / "dspark")
    heads = names.neutral({"model": target, "quantization": "fp8", "speculative_config": {"method": "mtp"}})
    assert heads["speculative_config"].pop("model") != target == heads["model"]
    assert heads["speculative_config"] == {"method": "mtp", "quantization": "fp8"}
    for untouched in ({"method": "ngram"}, {"method": "custom_class", "model": "my_dspark.Drafter"}, None):
        assert names.neutral({"model": target, "speculative_config": untouched})["speculative_config"] == untouched


def test_kind(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "max_position_embeddings": 64, "vocab_size": 9}')
    assert ENGINE.limits({"model": tmp_path}) == ModelLimits(64, 9)
    assert ENGINE.limits({"model": tmp_path, "max_model_len": 32}) == ModelLimits(32, 9)
    assert ENGINE.features({}).guided_decoding, "it always guides"
    assert ENGINE.features({"lora_dirs": [tmp_path]}).lora_dirs == (), "without enable_lora there is none"
    assert ENGINE.features({"lora_dirs": [tmp_path], "enable_lora": True}).lora_dirs == (tmp_path.resolve(),)
    assert ENGINE.split({"tensor_parallel_size": 2}) == (2, 1)
    with pytest.raises(ArgumentsError, match="takes no drafter of yours"):
        ENGINE.with_drafter({}, object(), None)
