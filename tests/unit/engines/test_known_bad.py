"""Combinations that are known to be bad: for each, changes of a good resource that make it, and its neighbours that
are fine."""

from pathlib import Path
from typing import Any

import pytest

from support.services import parse
from tandem.accept import Accepted, Refusal, accept
from tandem.engines.known_bad import KnownBad
from tandem.engines.known_bad_page import page
from tandem.engines.tensorrt_llm.known_bad_table import TABLE
from tandem.settings import Settings

BASE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: llama, namespace: default}
spec:
  runtime: {mode: LLMAPI, profile: PROFILE, image: registry.example/tritonserver:own}
  target: {model: {uri: file:///models/t}}
  speculation: {decodingType: None}
"""
PROFILES = {"1.2": "trtllm-26.07", "1.3": "trtllm-1.3", "1.4": "trtllm-1.4rc"}
NEEDS_DRAFT = ("DraftTarget", "Eagle3", "DFlash")

Change = dict[str, Any]


def kind(name: str, **details: Any) -> Change:
    draft = {"draft": {"model": {"uri": "file:///models/d"}}} if name in NEEDS_DRAFT else {}
    return {"speculation": {"decodingType": name, "maxDraftLen": 4, **details}, **draft}


def custom(name: str, **details: Any) -> Change:
    return kind("Custom", custom={"type": name}, **details)


def extra(**args: Any) -> Change:
    return {"runtime__extraLlmArgs": args}


def speculative(**args: Any) -> Change:
    return extra(speculative_config=args)


def steps(*sizes_and_lengths: tuple[int, int]) -> dict[str, Any]:
    return {"draftLenSchedule": [{"maxBatchSize": size, "draftLen": length} for size, length in sizes_and_lengths]}


EAGLE, MTP, DSPARK = kind("Eagle3"), kind("MTP"), kind("DSpark")
TREE = kind("Eagle3", eagle3={"dynamicTreeMaxTopK": 4})
TWO_MODELS = kind("Eagle3", eagle3={"oneModel": False})
GUIDED = {"guided_decoding_backend": "xgrammar"}
CONNECTOR = {"kv_connector_config": {"connector_module": "m"}}
MAX_UTILIZATION = {"scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"}}
V2 = {"kv_cache_config": {"use_kv_cache_manager_v2": True}}
V1 = {"kv_cache_config": {"use_kv_cache_manager_v2": False}}
NO_REUSE = {"target__kvCache": {"enableBlockReuse": False}}
DSA = {"sparse_attention_config": {"algorithm": "dsa"}}
CHUNKED = {"enable_chunked_prefill": True}
LORA = {"lora_config": {"max_lora_rank": 8}}
TO_16, TO_8 = steps((8, 4), (16, 1)), steps((8, 4))

# Dialect, what identifies the row, changes that make it, changes that do not.
ROWS: list[tuple[str, str, list[Change], list[Change]]] = [
    (
        "1.3",
        "guided decoding with a dynamic tree",
        [TREE | extra(**GUIDED), MTP | extra(**GUIDED, speculative_config={"use_dynamic_tree": True})],
        [EAGLE | extra(**GUIDED), TREE],
    ),
    (
        "1.4",
        "guided decoding with scheduler_config",
        [extra(**GUIDED, **MAX_UTILIZATION)],
        [extra(**MAX_UTILIZATION), extra(**GUIDED), {}],
    ),
    (
        "1.2",
        "kv_connector_config with Eagle3",
        [EAGLE | extra(**CONNECTOR), TWO_MODELS | extra(**CONNECTOR)],
        [EAGLE],
    ),
    (
        "1.3",
        "kv_connector_config with speculation",
        [MTP | extra(**CONNECTOR), kind("NGram") | extra(**CONNECTOR)],
        [extra(**CONNECTOR), EAGLE | extra(**CONNECTOR)],
    ),
    (
        "1.3",
        "KV cache manager V2 and block reuse",
        [EAGLE | extra(**V2), MTP, DSPARK | extra(**V2), custom("PARD") | extra(**V2)],
        [EAGLE, MTP | NO_REUSE, MTP | extra(**V1), kind("NGram") | extra(**V2), extra(**V2)],
    ),
    (
        "1.2",
        "enable_chunked_prefill with MTP or Eagle3",
        [MTP | extra(**CHUNKED), EAGLE | extra(**CHUNKED)],
        [
            MTP | extra(**CHUNKED, disable_overlap_scheduler=True),
            TWO_MODELS | extra(**CHUNKED),
            kind("DraftTarget") | extra(**CHUNKED),
            MTP,
            extra(**CHUNKED),
        ],
    ),
    (
        "1.3",
        "guided decoding with Eagle3 and no draft at some loads",
        [kind("Eagle3", **TO_8) | extra(**GUIDED), kind("Eagle3", maxConcurrency=8) | extra(**GUIDED)],
        [kind("Eagle3", **TO_16) | extra(**GUIDED), kind("MTP", **TO_8) | extra(**GUIDED), EAGLE | extra(**GUIDED)],
    ),
    ("1.2", "eagle_choices", [EAGLE | speculative(eagle_choices=[[0]])], [EAGLE]),
    (
        "1.3",
        "MTP on a model with sparse attention",
        [MTP | extra(**V1, **DSA)],
        [MTP | extra(**V1), EAGLE | extra(**V1, **DSA), MTP | extra(**DSA)],
    ),
    (
        "1.4",
        "MTP with kv_cache_config.use_kv_cache_manager_v2 false",
        [MTP | extra(**V1)],
        [MTP, MTP | extra(**V1, **DSA), EAGLE | extra(**V1)],
    ),
    (
        "1.3",
        "DSpark with an acceptance threshold",
        [
            DSPARK | speculative(acceptance_rate_threshold=0.5),
            DSPARK | speculative(acceptance_rate_window_size=8),
        ],
        [
            DSPARK,
            DSPARK | speculative(acceptance_rate_window_size=0),
            EAGLE | speculative(acceptance_rate_threshold=0.5),
        ],
    ),
    (
        "1.3",
        "an acceptance threshold",
        [EAGLE | speculative(acceptance_rate_threshold=0.5, acceptance_rate_window_size=8)],
        [EAGLE | speculative(acceptance_rate_window_size=8), EAGLE],
    ),
    ("1.2", "an acceptance threshold", [EAGLE | speculative(acceptance_length_threshold=1.5)], [EAGLE]),
    (
        "1.3",
        "speculation.maxConcurrency below serving.maxBatchSize",
        [kind(name, maxConcurrency=8) for name in ("DraftTarget", "Eagle3", "MTP", "DFlash")]
        + [custom("PARD", maxConcurrency=8)],
        [kind(name, maxConcurrency=8) for name in ("NGram", "DSpark")] + [kind("DraftTarget", maxConcurrency=16)],
    ),
    (
        "1.2",
        "speculation.maxConcurrency below serving.maxBatchSize",
        [kind("MTP", maxConcurrency=8), kind("DraftTarget", maxConcurrency=8)],
        [kind("Eagle3", maxConcurrency=8, eagle3={"oneModel": False})],
    ),
    (
        "1.3",
        "a speculation.draftLenSchedule that drafts nothing at some loads",
        [
            kind("Eagle3", **TO_8),
            kind("Eagle3", **steps((8, 4), (16, 0))),
            kind("DraftTarget", **steps((8, 4), (12, 1))),
        ],
        [
            kind("Eagle3", **TO_16),
            kind("DraftTarget", **steps((8, 4), (12, 1))) | {"serving": {"maxBatchSize": 12}},
            kind("NGram", **TO_8),
        ],
    ),
    ("1.4", "DSpark with speculation.maxConcurrency", [kind("DSpark", maxConcurrency=8)], [DSPARK]),
    (
        "1.3",
        "speculation.draftLenSchedule with enable_attention_dp",
        [kind("MTP", **TO_16) | extra(enable_attention_dp=True)],
        [MTP | extra(enable_attention_dp=True), kind("MTP", **TO_16)],
    ),
    (
        "1.2",
        "LoRA with speculation",
        [EAGLE | extra(**LORA), kind("NGram") | extra(enable_lora=True)],
        [extra(**LORA), EAGLE],
    ),
    (
        "1.3",
        "LoRA with PARD",
        [custom("PARD") | extra(**LORA)],
        [EAGLE | extra(**LORA), custom("PARD"), extra(**LORA)],
    ),
    (
        "1.3",
        "use_rejection_sampling with speculation.suffixAutomaton",
        [
            kind("Eagle3", suffixAutomaton={}) | speculative(use_rejection_sampling=True),
            custom("PARD", suffixAutomaton={"threshold": 2}) | speculative(use_rejection_sampling=True),
        ],
        [kind("Eagle3", suffixAutomaton={}), EAGLE | speculative(use_rejection_sampling=True)],
    ),
    ("1.2", "speculation.custom.type PARD or SA", [custom("PARD"), custom("SA")], [custom("SaveState")]),
    *(
        ("1.2", f"speculative_config.{name}", [EAGLE | speculative(**{name: value})], [EAGLE])
        for name, value in {
            "use_rejection_sampling": False,
            "enable_penalty": True,
            "advanced_sampling_mode": "full",
            "acceptance_rate_window_size": 8,
            "acceptance_rate_threshold": 0.5,
        }.items()
    ),
    ("1.2", "kv_cache_config.use_kv_cache_manager_v2", [extra(**V2)], [{}]),
    *(
        ("1.4", f"speculative_config.{name}", [EAGLE | speculative(**{name: value})], [EAGLE])
        for name, value in {"eagle_choices": [[0]], "greedy_sampling": True, "posterior_threshold": 0.1}.items()
    ),
    ("1.4", "speculative_config.mtp_eagle_one_model", [MTP | speculative(mtp_eagle_one_model=True)], [MTP]),
]


def row_of(dialect: str, name: str) -> KnownBad:
    (row,) = [row for row in TABLE if row.combination.startswith(name) and dialect in row.versions]
    return row


def judged(change: Change, dialect: str, settings: Settings) -> str:
    """The refusal, or all warnings."""
    decided = accept(parse(BASE.replace("PROFILE", PROFILES[dialect]), **change).spec, settings)
    return decided.message if isinstance(decided, Refusal) else "; ".join(decided.warnings)


CHANGES = [(dialect, name, change) for dialect, name, bad, _ in ROWS for change in bad]


@pytest.mark.parametrize(("dialect", "name", "change"), CHANGES, ids=[f"{d} {n} {c}" for d, n, c in CHANGES])
def test_bad(dialect: str, name: str, change: Change, settings: Settings) -> None:
    row = row_of(dialect, name)
    decided = accept(parse(BASE.replace("PROFILE", PROFILES[dialect]), **change).spec, settings)
    assert isinstance(decided, Refusal) is row.refused, decided
    if isinstance(decided, Refusal):
        assert decided.reason == "KnownBadCombination"
    assert row.message(f"TensorRT-LLM {dialect}") in judged(change, dialect, settings)


FINE = [(dialect, name, change) for dialect, name, _, fine in ROWS for change in fine]


@pytest.mark.parametrize(("dialect", "name", "change"), FINE, ids=[f"{d} {n} {c}" for d, n, c in FINE])
def test_its_neighbour(dialect: str, name: str, change: Change, settings: Settings) -> None:
    decided = accept(parse(BASE.replace("PROFILE", PROFILES[dialect]), **change).spec, settings)
    assert isinstance(decided, Accepted) or decided.reason == "KnownBadCombination", "another rule refuses it"
    assert row_of(dialect, name).combination not in judged(change, dialect, settings)


def test_each_row_has_its_cases() -> None:
    assert {row_of(dialect, name).combination for dialect, name, _, _ in ROWS} == {row.combination for row in TABLE}


def test_a_message_has_the_version_the_source_and_what_to_write(settings: Settings) -> None:
    assert judged(TREE | extra(**GUIDED), "1.3", settings) == (
        "guided decoding with a dynamic tree: TensorRT-LLM 1.3 emits tokens outside the grammar"
        " (https://github.com/NVIDIA/TensorRT-LLM/issues/18892): remove speculation.eagle3.dynamicTreeMaxTopK"
        " (use_dynamic_tree), or guided_decoding_backend"
    )


def test_other_engines_are_not_tensorrt_llm(settings: Settings) -> None:
    reference = kind("DraftTarget", maxConcurrency=8) | {"runtime__profile": "reference"}
    assert "maxConcurrency" not in judged(reference, "1.3", settings)


def test_the_page_in_the_repository_is_current() -> None:
    path = Path(__file__).parents[3] / "docs/reference/known-bad.md"
    assert path.read_text(encoding="utf-8") == page(), "run `make generate`"
