"""The arguments of TensorRT-LLM's LLM in each dialect: the part of the resource in, the YAML out.

The expected YAML follows upstream's llm_args.py (what each dialect was read from is in its module). Every row is
also read back by the dialect's typed model, which allows no other field.
"""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tandem.api.decoding import DecodingType
from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.tensorrt_llm.arguments import SCHEMAS, conflict, decided, llm_args, not_in_dialect, to_yaml
from tandem.engines.tensorrt_llm.dialect import Dialect

FOLDERS = {Role.TARGET: "/models/t", Role.DRAFT: "/models/d"}
ALONE = {Role.TARGET: "/models/t"}


def spec(speculation: str, **parts: Any) -> ServiceSpec:
    return ServiceSpec.model_validate(
        {
            "runtime": {"mode": "LLMAPI", "profile": "trtllm", **parts.get("runtime", {})},
            "target": {"model": {"uri": "file:///models/t"}, **parts.get("target", {})},
            "speculation": yaml.safe_load(speculation),
            **({"serving": parts["serving"]} if "serving" in parts else {}),
        }
    )


# name: (speculation, speculative_config of 1.2, speculative_config of 1.3 and of 1.4)
TYPES = {
    "DraftTarget": (
        "{decodingType: DraftTarget, maxDraftLen: 3}",
        "{decoding_type: DraftTarget, max_draft_len: 3, speculative_model_dir: /models/d}",
        "{decoding_type: Draft_Target, max_draft_len: 3, speculative_model: /models/d}",
    ),
    "Eagle3: 1.2 knows it by its older name in all releases": (
        "{decodingType: Eagle3, maxDraftLen: 3}",
        "{decoding_type: Eagle, max_draft_len: 3, speculative_model_dir: /models/d}",
        "{decoding_type: Eagle3, max_draft_len: 3, speculative_model: /models/d}",
    ),
    "Eagle is its alias": (
        "{decodingType: Eagle, eagle3: {modelArch: mistral_large3}}",
        "{decoding_type: Eagle, max_draft_len: 4, speculative_model_dir: /models/d,"
        " eagle3_model_arch: mistral_large3}",
        "{decoding_type: Eagle3, max_draft_len: 4, speculative_model: /models/d, eagle3_model_arch: mistral_large3}",
    ),
    "MTP: in 1.2 the number of layers is the draft length": (
        "{decodingType: MTP, maxDraftLen: 3}",
        "{decoding_type: MTP, num_nextn_predict_layers: 3}",
        "{decoding_type: MTP, max_draft_len: 3}",
    ),
    "MTP, relaxed": (
        "{decodingType: MTP, maxDraftLen: 3,"
        " mtp: {relaxedAcceptance: {topk: 10, delta: 0.6, endThinkingPhaseToken: 9}}}",
        "{decoding_type: MTP, use_relaxed_acceptance_for_thinking: true, relaxed_topk: 10, relaxed_delta: 0.6,"
        " end_thinking_phase_token: 9, num_nextn_predict_layers: 3}",
        "{decoding_type: MTP, use_relaxed_acceptance_for_thinking: true, relaxed_topk: 10, relaxed_delta: 0.6,"
        " end_thinking_phase_token: 9, max_draft_len: 3}",
    ),
    "NGram: all fields, since defaults drift": (
        "{decodingType: NGram, maxDraftLen: 5, nGram: {maxMatchingNgramSize: 4, isPublicPool: false}}",
        "{decoding_type: NGram, max_draft_len: 5, max_matching_ngram_size: 4, is_keep_all: true, is_use_oldest: true,"
        " is_public_pool: false}",
        "{decoding_type: NGram, max_draft_len: 5, max_matching_ngram_size: 4, is_keep_all: true, is_use_oldest: true,"
        " is_public_pool: false}",
    ),
    "NGram without its block": (
        "{decodingType: NGram}",
        "{decoding_type: NGram, max_draft_len: 4, max_matching_ngram_size: 2, is_keep_all: true, is_use_oldest: true,"
        " is_public_pool: true}",
        "{decoding_type: NGram, max_draft_len: 4, max_matching_ngram_size: 2, is_keep_all: true, is_use_oldest: true,"
        " is_public_pool: true}",
    ),
    "UserProvided: the drafter itself is no data": (
        "{decodingType: UserProvided, userProvided: {entryPoint: 'my:Drafter'}}",
        "{decoding_type: UserProvided, max_draft_len: 4}",
        "{decoding_type: User_Provided, max_draft_len: 4}",
    ),
    "Custom with a draft": (
        "{decodingType: Custom, custom: {type: PARD, args: {mask_token_id: 7}, needsDraft: true}}",
        "{decoding_type: PARD, mask_token_id: 7, max_draft_len: 4, speculative_model_dir: /models/d}",
        "{decoding_type: PARD, mask_token_id: 7, max_draft_len: 4, speculative_model: /models/d}",
    ),
    "Custom without": (
        "{decodingType: Custom, custom: {type: SA}}",
        "{decoding_type: SA, max_draft_len: 4}",
        "{decoding_type: SA, max_draft_len: 4}",
    ),
    "None": ("{decodingType: None}", "null", "null"),
    "a limit": (
        "{decodingType: DraftTarget, maxConcurrency: 8}",
        "{decoding_type: DraftTarget, max_concurrency: 8, max_draft_len: 4, speculative_model_dir: /models/d}",
        "{decoding_type: Draft_Target, max_concurrency: 8, max_draft_len: 4, speculative_model: /models/d}",
    ),
    "a schedule: up to 4 requests 4, up to 8 requests 2, then none": (
        "{decodingType: DraftTarget,"
        " draftLenSchedule: [{maxBatchSize: 4, draftLen: 4}, {maxBatchSize: 8, draftLen: 2}]}",
        "{decoding_type: DraftTarget, draft_len_schedule: {1: 4, 5: 2, 9: 0}, max_draft_len: 4,"
        " speculative_model_dir: /models/d}",
        "{decoding_type: Draft_Target, draft_len_schedule: {4: 4, 8: 2}, max_draft_len: 4,"
        " speculative_model: /models/d}",
    ),
}
ROWS = [
    pytest.param(speculation, dialect, expected, id=f"{dialect} {name}")
    for name, (speculation, v1_2, v1_3) in TYPES.items()
    for dialect, expected in ((Dialect.V1_2, v1_2), (Dialect.V1_3, v1_3), (Dialect.V1_4, v1_3))
]
# What came with 1.3, likewise: (speculation, speculative_config of 1.3, of 1.4; None: it has no such value)
NEWER = {
    "DFlash": (
        "{decodingType: DFlash, maxDraftLen: 7}",
        "{decoding_type: DFlash, max_draft_len: 7, speculative_model: /models/d}",
        "{decoding_type: DFlash, max_draft_len: 7, speculative_model: /models/d}",
    ),
    "DFlash, its block": (
        "{decodingType: DFlash, dFlash: {maskTokenId: 9, targetLayerIds: [2, 18], attentionBackend: FA4}}",
        "{decoding_type: DFlash, max_draft_len: 4, speculative_model: /models/d, mask_token_id: 9,"
        " target_layer_ids: [2, 18], attention_backend: FA4}",
        "{decoding_type: DFlash, max_draft_len: 4, speculative_model: /models/d, mask_token_id: 9,"
        " target_layer_ids: [2, 18], attention_backend: FA4}",
    ),
    "DFlash, the end of the context again": (
        "{decodingType: DFlash, dFlash: {contextRecomputeTail: 0}}",
        None,
        "{decoding_type: DFlash, max_draft_len: 4, speculative_model: /models/d, context_recompute_tail: 0}",
    ),
    "DSpark in the target's checkpoint": (
        "{decodingType: DSpark, maxDraftLen: 5}",
        "{decoding_type: DSpark, max_draft_len: 5}",
        "{decoding_type: DSpark, max_draft_len: 5}",
    ),
    "DSpark, its block, and a draft": (
        "{decodingType: DSpark, dSpark: {maskTokenId: 9, targetLayerIds: [2], markovRank: 0, markovHeadType: gated,"
        " attentionBackend: TRTLLM}} # needsDraft: true",
        "{decoding_type: DSpark, max_draft_len: 4, speculative_model: /models/d, mask_token_id: 9,"
        " target_layer_ids: [2], markov_rank: 0, markov_head_type: gated, attention_backend: TRTLLM}",
        "{decoding_type: DSpark, max_draft_len: 4, speculative_model: /models/d, mask_token_id: 9,"
        " target_layer_ids: [2], markov_rank: 0, markov_head_type: gated, attention_backend: TRTLLM}",
    ),
    "DSpark's newer attention": (
        "{decodingType: DSpark, dSpark: {attentionBackend: AUTO}}",
        None,
        "{decoding_type: DSpark, max_draft_len: 4, attention_backend: AUTO}",
    ),
    "a suffix automaton with Eagle3": (
        "{decodingType: Eagle3, suffixAutomaton: {threshold: 8, enableGlobalPool: true}}",
        "{decoding_type: Eagle3, max_draft_len: 4, speculative_model: /models/d,"
        " sa_config: {threshold: 8, enable_global_pool: true}}",
        "{decoding_type: Eagle3, max_draft_len: 4, speculative_model: /models/d,"
        " sa_config: {threshold: 8, enable_global_pool: true}}",
    ),
    "a suffix automaton with MTP, as it is by default": (
        "{decodingType: MTP, suffixAutomaton: {}}",
        "{decoding_type: MTP, max_draft_len: 4, sa_config: {}}",
        "{decoding_type: MTP, max_draft_len: 4, sa_config: {}}",
    ),
    "a suffix automaton with PARD": (
        "{decodingType: Custom, custom: {type: PARD, needsDraft: true}, suffixAutomaton: {threshold: 2}}",
        "{decoding_type: PARD, max_draft_len: 4, speculative_model: /models/d, sa_config: {threshold: 2}}",
        "{decoding_type: PARD, max_draft_len: 4, speculative_model: /models/d, sa_config: {threshold: 2}}",
    ),
}
ROWS += [
    pytest.param(speculation, dialect, expected, id=f"{dialect} {name}")
    for name, (speculation, v1_3, v1_4) in NEWER.items()
    for dialect, expected in ((Dialect.V1_3, v1_3), (Dialect.V1_4, v1_4))
    if expected is not None
]
MISSING = [
    (
        "{decodingType: DFlash, dFlash: {contextRecomputeTail: 0}}",
        Dialect.V1_3,
        "speculation.dFlash.contextRecomputeTail",
    ),
    ("{decodingType: DSpark, dSpark: {attentionBackend: AUTO}}", Dialect.V1_3, "speculation.dSpark.attentionBackend"),
    ("{decodingType: MTP, suffixAutomaton: {}}", Dialect.V1_2, "speculation.suffixAutomaton"),
    ("{decodingType: MTP, suffixAutomaton: {}}", Dialect.V1_3, None),
    ("{decodingType: NGram}", Dialect.V1_2, None),
    ("{decodingType: None}", Dialect.V1_2, None),
]


def folders_of(speculation: str) -> dict[Role, str]:
    drafted = ("DraftTarget", "Eagle", "DFlash", "needsDraft: true")
    return FOLDERS if any(word in speculation for word in drafted) else ALONE


@pytest.mark.parametrize(("speculation", "dialect", "expected"), ROWS)
def test_speculative_config(speculation: str, dialect: Dialect, expected: str) -> None:
    args = llm_args(spec(speculation), dialect, folders_of(speculation))
    config = args.get("speculative_config")
    assert config == yaml.safe_load(expected)
    if config:
        kind = DecodingType(yaml.safe_load(speculation)["decodingType"])
        SCHEMAS[dialect].configs[kind].model_validate(config)
    assert yaml.safe_load(to_yaml(args)) == args


@pytest.mark.parametrize(("speculation", "dialect", "field"), MISSING)
def test_the_field_whose_value_a_dialect_does_not_have(speculation: str, dialect: Dialect, field: str | None) -> None:
    drafted = {"draft": {"model": {"uri": "file:///models/d"}}} if "DFlash" in speculation else {}
    made = spec(speculation)
    made = ServiceSpec.model_validate({**made.model_dump(by_alias=True, exclude_unset=True), **drafted})
    assert not_in_dialect(made, dialect) == field


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_what_a_dialect_is_known_for_its_schema_has(dialect: Dialect) -> None:
    fields = SCHEMAS[dialect].configs[DecodingType.EAGLE3].model_fields
    assert ("eagle3_one_model" in fields) == dialect.facts.two_model_eagle3
    assert ("use_dynamic_tree" in fields) == dialect.facts.dynamic_tree


def test_only_the_newer_dialect_has_trees_and_only_the_older_two_models() -> None:
    tree = "{decodingType: Eagle3, maxDraftLen: 6, eagle3: {dynamicTreeMaxTopK: 10, maxTotalDraftTokens: 60}}"
    assert llm_args(spec(tree), Dialect.V1_3, FOLDERS)["speculative_config"] == yaml.safe_load(
        "{decoding_type: Eagle3, max_draft_len: 6, speculative_model: /models/d, use_dynamic_tree: true,"
        " dynamic_tree_max_topK: 10, max_total_draft_tokens: 60}"
    )
    two = "{decodingType: Eagle3, eagle3: {oneModel: false}}"
    assert llm_args(spec(two), Dialect.V1_2, FOLDERS)["speculative_config"]["eagle3_one_model"] is False


def active(schedule: dict[int, int], dialect: Dialect, requests: int) -> int:
    """How TensorRT-LLM reads a schedule: in 1.2 the last key with `batch >= key`, in 1.3 the first with `<=`."""
    if dialect is Dialect.V1_2:
        return schedule[max(key for key in schedule if requests >= key)]
    return next((schedule[key] for key in sorted(schedule) if requests <= key), 0)


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_a_schedule_means_the_same_at_every_load(dialect: Dialect) -> None:
    steps = [(1, 5), (4, 3), (5, 0), (9, 1)]
    text = ", ".join(f"{{maxBatchSize: {size}, draftLen: {length}}}" for size, length in steps)
    args = llm_args(
        spec(f"{{decodingType: NGram, maxDraftLen: 5, draftLenSchedule: [{text}]}}"), dialect, {Role.TARGET: "t"}
    )
    schedule = args["speculative_config"]["draft_len_schedule"]
    for requests in range(1, 20):
        wanted = next((length for size, length in steps if requests <= size), 0)
        assert active(schedule, dialect, requests) == wanted, requests


def test_the_other_arguments() -> None:
    full = spec(
        "{decodingType: NGram}",
        target={
            "tensorParallelSize": 4,
            "pipelineParallelSize": 2,
            "dtype": "bfloat16",
            "kvCache": {"freeGpuMemoryFraction": 0.8},
        },
        serving={"maxBatchSize": 32},
        runtime={"extraLlmArgs": {"kv_cache_config": {"host_cache_size": 1024}, "enable_chunked_prefill": True}},
    )
    args = llm_args(full, Dialect.V1_2, ALONE)
    del args["speculative_config"]
    assert to_yaml(args).splitlines() == [
        "model: /models/t",
        "tensor_parallel_size: 4",
        "pipeline_parallel_size: 2",
        "dtype: bfloat16",
        "max_batch_size: 32",
        "kv_cache_config:",
        "  free_gpu_memory_fraction: 0.8",
        "  enable_block_reuse: true",
        "  host_cache_size: 1024",
        "disable_overlap_scheduler: true",  # n-gram drafts are made by the host between passes
        "enable_chunked_prefill: true",
    ]


def test_a_tokenizer_that_is_elsewhere() -> None:
    folders = {**ALONE, Role.TARGET_TOKENIZER: "/sources/target-tokenizer"}
    args = decided(spec("{decodingType: None}"), Dialect.V1_2, folders)
    assert (args["model"], args["tokenizer"]) == ("/models/t", "/sources/target-tokenizer")
    assert conflict(args, {"tokenizer": "other"}) == (
        "runtime.extraLlmArgs.tokenizer is decided by target.model.tokenizer: remove it, and write"
        " target.model.tokenizer instead"
    )
    assert conflict(decided(spec("{decodingType: None}"), Dialect.V1_2, ALONE), {"tokenizer": "other"}) is None


def test_what_the_resource_does_not_say_is_not_written() -> None:
    args = llm_args(spec("{decodingType: None}"), Dialect.V1_2, ALONE)
    assert args == {
        "model": "/models/t",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "max_batch_size": 16,
    }


# (decodingType, extraLlmArgs, the message's beginning and the field that it names; None: allowed)
EXTRA = [
    ("NGram", "{enable_chunked_prefill: true}", None),
    ("NGram", "{kv_cache_config: {host_cache_size: 1}}", None),
    ("DraftTarget", "{disable_overlap_scheduler: true}", None),
    ("DraftTarget", "{speculative_config: {use_rejection_sampling: true}}", None),
    ("NGram", "{model: other}", ("model", "target.model.uri")),
    ("NGram", "{tensor_parallel_size: 1}", ("tensor_parallel_size", "target.tensorParallelSize")),
    ("NGram", "{max_batch_size: 4}", ("max_batch_size", "serving.maxBatchSize")),
    ("NGram", "{dtype: float16}", ("dtype", "target.dtype")),
    ("NGram", "{backend: tensorrt}", ("backend", "runtime.profile")),
    ("NGram", "{kv_cache_config: {max_tokens: 4}}", ("kv_cache_config.max_tokens", "target.kvCache.maxTokens")),
    ("NGram", "{disable_overlap_scheduler: false}", ("disable_overlap_scheduler", "speculation.decodingType")),
    (
        "NGram",
        "{speculative_config: {max_draft_len: 1}}",
        ("speculative_config.max_draft_len", "speculation.maxDraftLen"),
    ),
    (
        "DraftTarget",
        "{speculative_config: {speculative_model_dir: /x}}",
        ("speculative_config.speculative_model_dir", "draft.model.uri"),
    ),
    (
        "NGram",
        "{speculative_config: {drafter: x}}",
        ("speculative_config.drafter", "speculation.userProvided.entryPoint"),
    ),
    ("None", "{speculative_config: {decoding_type: NGram}}", ("speculative_config", "speculation.decodingType")),
    (
        "MTP",
        "{speculative_config: {sa_config: {threshold: 2}}}",
        ("speculative_config.sa_config", "speculation.suffixAutomaton"),
    ),
    ("MTP", "{speculative_config: {use_dynamic_tree: true, dynamic_tree_max_topK: 4}}", None),
    (
        "NGram",
        "{speculative_config: {use_dynamic_tree: true}}",
        ("speculative_config.use_dynamic_tree", "speculation.eagle3.dynamicTreeMaxTopK"),
    ),
    ("{type: PARD}", "{speculative_config: {sa_config: {threshold: 2}, mask_token_id: 4}}", None),
    (
        "{type: SA, args: {global_pool_size: 3}}",
        "{speculative_config: {global_pool_size: 4}}",
        ("speculative_config.global_pool_size", "speculation.custom.args"),
    ),
]


@pytest.mark.parametrize(("kind", "extra", "refused"), EXTRA, ids=[f"{row[0]} {row[1]}" for row in EXTRA])
@pytest.mark.parametrize("dialect", SCHEMAS)
def test_extra_arguments_cannot_contradict(
    kind: str, extra: str, refused: tuple[str, str] | None, dialect: Dialect
) -> None:
    speculation = f"{{decodingType: Custom, custom: {kind}}}" if kind.startswith("{") else f"{{decodingType: {kind}}}"
    mine, theirs = (
        decided(spec(speculation), dialect, FOLDERS if kind == "DraftTarget" else ALONE),
        yaml.safe_load(extra),
    )
    message = conflict(mine, theirs)
    if refused is None:
        assert message is None
    else:
        argument, field = refused
        assert message == (
            f"runtime.extraLlmArgs.{argument} is decided by {field}: remove it, and write {field} instead"
        )


@pytest.mark.parametrize(("kind", "block"), [("DFlash", "dFlash"), ("DSpark", "dSpark")])
def test_a_field_of_two_types_is_the_one_that_is_written(kind: str, block: str) -> None:
    extra = {"speculative_config": {"target_layer_ids": [1]}}
    message = conflict(decided(spec(f"{{decodingType: {kind}}}"), Dialect.V1_4, FOLDERS), extra)
    assert message is not None
    assert message.endswith(f"write speculation.{block}.targetLayerIds instead")


@pytest.mark.parametrize("value", [None, 3, "x", []])
def test_a_mapping_cannot_be_replaced_by_something_else(value: object) -> None:
    message = conflict(decided(spec("{decodingType: None}"), Dialect.V1_2, ALONE), {"kv_cache_config": value})
    assert message == (
        "runtime.extraLlmArgs.kv_cache_config must be a mapping: write the fields that you add below it"
    )


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_the_models_allow_no_other_field(dialect: Dialect) -> None:
    for kind, config in SCHEMAS[dialect].configs.items():
        if kind is not DecodingType.CUSTOM:
            with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
                config.model_validate({"no_such_field": 1})


def test_a_pasted_file_of_trtllm_serve_names_the_field_for_each_argument() -> None:
    """All at once: else each try of the user's finds the next one."""
    pasted = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "backend": "pytorch",
        "tensor_parallel_size": 4,
        "max_num_tokens": 8192,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.8, "dtype": "fp8"},
        "cuda_graph_config": {"enable_padding": True},
        "speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model_dir": "x/y"},
    }
    assert conflict(decided(spec("{decodingType: NGram}"), Dialect.V1_2, ALONE), pasted) == (
        "runtime.extraLlmArgs has what fields decide: remove it, and write the fields instead: model"
        " (target.model.uri), backend (runtime.profile), tensor_parallel_size (target.tensorParallelSize),"
        " kv_cache_config.free_gpu_memory_fraction (target.kvCache.freeGpuMemoryFraction),"
        " speculative_config.decoding_type (speculation.decodingType), speculative_config.max_draft_len"
        " (speculation.maxDraftLen), speculative_config.speculative_model_dir (draft.model.uri)"
    )
    wrong = {"kv_cache_config": 1, "model": "x", "speculative_config": {"decoding_type": "NGram"}}
    assert conflict(decided(spec("{decodingType: None}"), Dialect.V1_2, ALONE), wrong) == (
        "runtime.extraLlmArgs.kv_cache_config must be a mapping: write the fields that you add below it;"
        " runtime.extraLlmArgs has what fields decide: remove it, and write the fields instead: model"
        " (target.model.uri), speculative_config (speculation.decodingType)"
    )
