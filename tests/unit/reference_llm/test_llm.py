"""reference_llm: drafts change how fast the tokens come, never which; what it cannot do is refused by name."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from reference_engine import engine
from reference_engine.config import CheckpointError
from reference_engine.engine import Settings
from reference_engine.request import Output
from reference_llm import LLM, SamplingParams
from reference_llm.executor.result import RequestOutput
from reference_llm.llmapi.drafters import lookup
from reference_llm.llmapi.llm import Tokenizer as LlmTokenizer
from reference_llm.llmapi.llm import end_ids
from reference_llm.llmapi.llm_args import DraftTargetConfig, LlmArgs
from tandem_serving.llmapi.engines.tensorrt_llm.statistics import parse
from tandem_serving.llmapi.statistics import EngineState
from unit.reference_engine import tiny_llama

PROMPTS = [[5, 9, 2, 7], [1, 2, 3, 1, 2, 3, 1, 2], [42], [90, 17, 17, 3, 8, 11]]
TOKENS = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a draft with other weights, one that agrees always (the target's own)."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "target": tiny_llama.write(root / "target"),
        "other": tiny_llama.write(root / "other", seed=1),
        "short": tiny_llama.write(root / "short", {"max_position_embeddings": 16}),
        "foreign": tiny_llama.write(root / "foreign", {"vocab_size": 98}),
    }
    for folder in made.values():
        Tokenizer(models.WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0")).save(
            str(folder / "tokenizer.json")
        )
    return made


def llm(folders: dict[str, Path], **arguments: Any) -> LLM:
    config = arguments.get("speculative_config") or {}
    if "speculative_model" in config:
        arguments["speculative_config"] = config | {"speculative_model": str(folders[config["speculative_model"]])}
    return LLM(folders["target"], **arguments)


async def run(model: LLM, ids: list[int], streaming: bool = True, **sampling: Any) -> RequestOutput:
    result = model.generate_async(
        {"prompt_token_ids": ids}, SamplingParams(**{"max_tokens": TOKENS, **sampling}), streaming=streaming
    )
    async for _ in result:
        pass
    return result


def draft(model: str, length: int, **more: Any) -> dict[str, Any]:
    return {"decoding_type": "Draft_Target", "max_draft_len": length, "speculative_model": model, **more}


NGRAM = {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 2}
CONFIGS = {
    "one draft token": draft("other", 1),
    "four, rarely right": draft("other", 4),
    "four, always right": draft("target", 4),
    "more than there is to generate": draft("target", 60),
    "a draft whose context ends first": draft("short", 4),
    "n-grams": NGRAM,
    "n-grams, newest": NGRAM | {"is_use_oldest": False, "max_matching_ngram_size": 3},
    "nothing drafted above two sequences": draft("target", 4, max_concurrency=2),
    "fewer with more sequences": draft("target", 4, draft_len_schedule={1: 4, 3: 1}),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"top_p": 0.9, "temperature": 1.3, "seed": 11},
    "penalized": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "top_k": 5, "seed": 3},
    "no end before 20": {"min_tokens": 20},
    "a bad word": {"bad": ["w17"]},
}


@asynccontextmanager
async def closing(model: LLM) -> AsyncIterator[LLM]:
    try:
        yield model
    finally:
        await asyncio.to_thread(model.shutdown)


@pytest.fixture(scope="module")
def alone(folders: dict[str, Path]) -> Iterator[LLM]:
    model = llm(folders)
    yield model
    model.shutdown()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
async def test_tokens_are_the_target_s_own(
    folders: dict[str, Path], alone: LLM, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All prompts at once, by each way of sampling: greedy and sampled output equals that without a draft."""
    ends = (96, 4)  # ids that random weights reach now and then
    monkeypatch.setattr(alone, "_end_ids", ends)
    async with closing(llm(folders, speculative_config=config)) as model:
        model._end_ids = ends
        for name, sampling in SAMPLINGS.items():
            expected = [await run(alone, ids, **sampling) for ids in PROMPTS]
            got = await asyncio.gather(*(run(model, ids, **sampling) for ids in PROMPTS))
            for one, other in zip(got, expected, strict=True):
                assert one.outputs[0].token_ids == other.outputs[0].token_ids, name
                assert one.outputs[0].finish_reason == other.outputs[0].finish_reason, name


@pytest.mark.parametrize(
    ("generation", "config", "named", "expected"),
    [
        ([5, 6], 7, None, (5, 6)),
        (None, 7, None, (7,)),
        (5, 7, "w8", (8, 5)),
        ([5, 8], 7, {"content": "w8"}, (8, 5)),
        (None, None, "unknown", ()),
    ],
)
def test_all_ends_of_the_files(
    tmp_path: Path, generation: object, config: object, named: object, expected: tuple[int, ...]
) -> None:
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(9)}, unk_token="w0")).save(str(tmp_path / "tokenizer.json"))
    files = {"generation_config": {"eos_token_id": generation}, "config": {"eos_token_id": config}}
    for name, values in {**files, "tokenizer_config": {"eos_token": named}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    assert end_ids(tmp_path, LlmTokenizer(tmp_path), tmp_path) == expected


async def test_log_probabilities_are_the_target_s_own(folders: dict[str, Path], alone: LLM) -> None:
    async with closing(llm(folders, speculative_config=draft("target", 4))) as model:
        one, other = await run(model, PROMPTS[0], logprobs=1), await run(alone, PROMPTS[0], logprobs=1)
    assert one.outputs[0].cumulative_logprob == pytest.approx(other.outputs[0].cumulative_logprob, abs=1e-9)


async def test_what_was_drafted_and_accepted_is_reported(folders: dict[str, Path]) -> None:
    """A draft that is always right: a pass over the prompt, four of 5 tokens, then one of 3 (two of them drafted)."""
    async with closing(llm(folders, speculative_config=draft("target", 4))) as model:
        result = await run(model, PROMPTS[0], ignore_eos=True)
    reported = result.outputs[0].request_perf_metrics.speculative_decoding
    assert (reported.total_draft_tokens, reported.total_accepted_draft_tokens) == (4 * 4 + 2, 4 * 4 + 2)
    assert result.avg_decoded_tokens_per_iter == TOKENS / 6


async def test_without_speculation_nothing_was_drafted(alone: LLM) -> None:
    result = await run(alone, PROMPTS[0], ignore_eos=True)
    assert result.outputs[0].request_perf_metrics.speculative_decoding.total_draft_tokens == 0
    assert result.avg_decoded_tokens_per_iter == 1


async def test_a_repeating_text_drafts_itself(folders: dict[str, Path]) -> None:
    """The random model repeats itself now and then, and n-grams find it."""
    async with closing(llm(folders, speculative_config=NGRAM)) as model:
        result = await run(model, PROMPTS[1], max_tokens=120, ignore_eos=True)
    accepted = result.outputs[0].request_perf_metrics.speculative_decoding.total_accepted_draft_tokens
    assert accepted > 0
    assert result.avg_decoded_tokens_per_iter == 120 / (120 - accepted)


@pytest.mark.parametrize("config", [None, draft("other", 3), NGRAM], ids=["alone", "draft", "n-grams"])
async def test_an_aborted_request_ends_alone(folders: dict[str, Path], config: dict[str, Any] | None) -> None:
    async with closing(llm(folders, speculative_config=config)) as model:
        long = model.generate_async(
            {"prompt_token_ids": [1]}, SamplingParams(max_tokens=250, ignore_eos=True), streaming=True
        )
        await anext(aiter(long))
        long.abort()
        async for _ in long:
            pass
        assert (long.outputs[0].finish_reason, long.aborted()) == ("cancelled", True)
        assert len((await run(model, PROMPTS[0], ignore_eos=True)).outputs[0].token_ids or []) == TOKENS


async def test_after_its_end_it_is_not_healthy_and_refuses(folders: dict[str, Path]) -> None:
    async with closing(llm(folders, speculative_config=draft("other", 3))) as model:
        assert model._check_health()
    assert not model._check_health()
    with pytest.raises(RuntimeError, match="LLM is shutting down"):
        model.generate_async({"prompt_token_ids": [1]})


LOOKUPS = [
    ("the longest match wins", [1, 2, 9, 3, 2, 8, 1, 2], 2, True, [9, 3, 2, 8, 1, 2]),
    ("a shorter one, where no longer is", [7, 2, 9, 3, 2], 2, True, [9, 3, 2]),
    ("the oldest", [5, 1, 5, 2, 5], 1, True, [1, 5, 2, 5]),
    ("the newest", [5, 1, 5, 2, 5], 1, False, [2, 5]),
    ("nothing repeats", [1, 2, 3], 2, True, []),
    ("one token", [1], 4, True, []),
]


@pytest.mark.parametrize(("reason", "tokens", "largest", "oldest", "expected"), LOOKUPS, ids=[r[0] for r in LOOKUPS])
def test_lookup(reason: str, tokens: list[int], largest: int, oldest: bool, expected: list[int]) -> None:
    assert lookup(np.array(tokens, np.int32), largest, oldest).tolist() == expected


SCHEDULES = [
    ("always", {}, {1: 4, 50: 4}),
    ("up to two sequences", {"max_concurrency": 2}, {2: 4, 3: 0}),
    ("by steps, none above the last", {"draft_len_schedule": {2: 4, 8: 1}}, {1: 4, 2: 4, 3: 1, 8: 1, 9: 0}),
]


@pytest.mark.parametrize(("reason", "fields", "lengths"), SCHEDULES, ids=[row[0] for row in SCHEDULES])
def test_draft_length_by_load(reason: str, fields: dict[str, Any], lengths: dict[int, int]) -> None:
    config = DraftTargetConfig(max_draft_len=4, speculative_model="m", **fields)
    assert {count: config.draft_len(count) for count in lengths} == lengths


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kv_cache_config": {"max_tokens": 5}}, "kv_cache_config is not an argument that reference_llm knows"),
    ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2, and backend numpy can do 1"),
    ({"backend": "jax"}, "backend is 'jax', and reference_llm has numpy and torch: write one of them"),
    ({"dtype": "bfloat16"}, "dtype is 'bfloat16', and reference_llm can do 'auto' or 'float32' only"),
    (
        {"speculative_config": {"decoding_type": "MTP"}},
        "decoding_type is 'MTP': reference_llm knows Draft_Target, NG",
    ),
    ({"speculative_config": NGRAM | {"sa_config": {}}}, "speculative_config.sa_config is not a field of NGram"),
    ({"speculative_config": {"decoding_type": "NGram"}}, "speculative_config.max_draft_len is missing"),
    ({"speculative_config": NGRAM | {"max_draft_len": 0}}, "speculative_config.max_draft_len is 0: write 1 or more"),
    (
        {"speculative_config": {"decoding_type": "Draft_Target", "max_draft_len": 2}},
        "speculative_config.speculative_model is missing: Draft_Target needs it",
    ),
]


def test_the_backend_reaches_the_engines(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    settings: list[Settings] = []

    def load(given: Settings) -> None:
        settings.append(given)
        raise CheckpointError

    monkeypatch.setattr(engine, "load", load)
    with pytest.raises(CheckpointError):
        LLM(folders["target"], backend="torch", max_batch_size=4, max_seq_len=96)
    assert [(each.backend, each.max_num_sequences, each.max_seq_len) for each in settings] == [("torch", 4, 96)]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[row[1] for row in REFUSED])
def test_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message.replace(".", r"\.")):
        LlmArgs(model="m", **arguments)


def test_a_draft_of_another_vocabulary_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="the draft model has a vocabulary of 98, the target of 97"):
        llm(folders, speculative_config=draft("foreign", 2))


SAMPLING_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"best_of": 2, "top_k": 5}, "has no best_of"),
    ({"min_p": 0.1}, "has no min_p"),
    ({"top_p": 2.0}, "runtime_top_p is 2.0"),
]


@pytest.mark.parametrize(("sampling", "message"), SAMPLING_REFUSED, ids=[row[1] for row in SAMPLING_REFUSED])
async def test_sampling_that_the_engine_has_not_is_refused(
    alone: LLM, sampling: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        alone.generate_async({"prompt_token_ids": [1]}, SamplingParams(**sampling))


async def test_a_bad_word_without_a_token_bans_nothing(alone: LLM) -> None:
    with_one = await run(alone, PROMPTS[0], bad=[""])
    assert with_one.outputs[0].token_ids == (await run(alone, PROMPTS[0])).outputs[0].token_ids


@pytest.mark.parametrize("config", [None, NGRAM], ids=["alone", "n-grams"])
async def test_the_state_of_the_engine_is_told_where_it_is_asked_for(
    folders: dict[str, Path], config: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TensorRT-LLM's names, as `statistics` of the LLM-API model reads them."""
    add, looked, early = RequestOutput.add, threading.Event(), EngineState(requests=1, blocks=2 * 4, used=1)

    def add_and_wait(result: RequestOutput, output: Output) -> None:
        add(result, output)
        assert looked.wait(60)  # else it may be far on, or done, when it is looked at

    monkeypatch.setattr(RequestOutput, "add", add_and_wait)
    for asked in (True, False):
        looked.clear()
        model = llm(folders, speculative_config=config, enable_iter_perf_stats=asked, max_batch_size=2)
        running = asyncio.ensure_future(run(model, PROMPTS[0], max_tokens=200))
        states = []
        while not running.done():
            states += [parse(told) async for told in model.get_stats_async()]
            if not asked or early in states:
                looked.set()
            await asyncio.sleep(0.001)
        model.shutdown()
        assert bool(states) == asked
        assert not asked or early in states
