"""The table of combinations that TensorRT-LLM takes and then serves wrongly, or does not have, by version. Data."""

from tandem.engines.known_bad import Case, KnownBad, any_of, has, is_kind, speculates, unless
from tandem.engines.tensorrt_llm.dialect import Dialect

THRESHOLDS = ("acceptance_length_threshold", "acceptance_rate_threshold")
"""Fields of `speculative_config` below which TensorRT-LLM stops drafting for good."""


def _two_models(case: Case) -> bool:
    """Whether EAGLE-3's heads run as a model of their own, apart from the target."""
    return case.value("speculative_config.eagle3_one_model") is False


def _keeps_state(case: Case) -> bool:
    """Whether the drafter is in the engine and has, say, a KV cache, which only drafting brings up to date, and may
    rest; DSpark drafts at every load."""
    on_host = case.spec.speculation.decoding_type.traits.drafts_on_host
    return speculates(case) and not (on_host or _two_models(case) or case.kind == "DSpark")


def _limited(case: Case) -> bool:
    limit = case.spec.speculation.max_concurrency
    return limit is not None and limit < case.spec.serving.max_batch_size


def _scheduled(case: Case) -> bool:
    return bool(case.spec.speculation.draft_len_schedule)


def _schedule_rests(case: Case) -> bool:
    """Whether the schedule drafts nothing at some loads: above its last step it does not."""
    steps = case.spec.speculation.draft_len_schedule or []
    short = bool(steps) and steps[-1].max_batch_size < case.spec.serving.max_batch_size
    return short or any(step.draft_len == 0 for step in steps)


def _version_2(case: Case) -> bool:
    """Whether KV cache manager V2 runs: as asked for, or chosen (`auto`, the default) for models with MTP layers."""
    asked = case.value("kv_cache_config.use_kv_cache_manager_v2")
    return asked is True or (asked in (None, "auto") and case.kind == "MTP")


def _dsa(case: Case) -> bool:
    return str(case.value("sparse_attention_config.algorithm")).upper() == "DSA"


_SINCE_1_3 = (Dialect.V1_3, Dialect.V1_4)
_ALL = (Dialect.V1_2, *_SINCE_1_3)
_GITHUB = "https://github.com/NVIDIA/TensorRT-LLM"
_ARGS_1_2 = "https://nvidia.github.io/TensorRT-LLM/1.2.1/_modules/tensorrt_llm/llmapi/llm_args.html"
_ARGS_1_4 = "https://nvidia.github.io/TensorRT-LLM/1.4.0rc1/llm-api/reference/Eagle3DecodingConfig.html"
_ARGS = f"{_GITHUB}/blob/main/tensorrt_llm/llmapi/llm_args.py"
_GUIDED = has("guided_decoding_backend")
_GATED = any_of(*(has(f"speculative_config.{name}", lambda value: value is not None) for name in THRESHOLDS))
_CONNECTOR = has("kv_connector_config")
_EAGLE = is_kind("Eagle", "Eagle3")
_OWN_KV_CACHE = is_kind("MTP", "Eagle3", "Draft_Target", "PARD", "DFlash", "DSpark")
_NOT_IN_1_2 = (
    "speculative_config.use_rejection_sampling",
    "speculative_config.enable_penalty",
    "speculative_config.advanced_sampling_mode",
    "speculative_config.acceptance_rate_window_size",
    "speculative_config.acceptance_rate_threshold",
    "kv_cache_config.use_kv_cache_manager_v2",
)
_NOT_IN_1_4 = (
    "speculative_config.eagle_choices",
    "speculative_config.greedy_sampling",
    "speculative_config.posterior_threshold",
    "speculative_config.mtp_eagle_one_model",
)
_STALE = "lets a drafter in its engine miss tokens, and accepts almost none of its drafts until those requests end"


def _no_field(dialect: Dialect, path: str, source: str) -> KnownBad:
    return KnownBad(
        combination=path,
        versions=(dialect,),
        when=(has(path, lambda value: value is not None),),
        happens="has no such field, and refuses what it does not know",
        instead="remove it, or write another profile",
        source=source,
        refused=True,
    )


TABLE = (
    # Wrong text
    KnownBad(
        combination="guided decoding with a dynamic tree",
        versions=_SINCE_1_3,
        when=(_GUIDED, has("speculative_config.use_dynamic_tree")),
        happens="emits tokens outside the grammar",
        instead="remove speculation.eagle3.dynamicTreeMaxTopK (use_dynamic_tree), or guided_decoding_backend",
        source=f"{_GITHUB}/issues/18892",
        refused=True,
    ),
    KnownBad(
        combination="guided decoding with scheduler_config.capacity_scheduler_policy MAX_UTILIZATION",
        versions=_SINCE_1_3,
        when=(
            _GUIDED,
            has("scheduler_config.capacity_scheduler_policy", lambda policy: policy == "MAX_UTILIZATION"),
        ),
        happens="starts the grammar again after a request was paused",
        instead="remove capacity_scheduler_policy, or guided_decoding_backend",
        source=f"{_GITHUB}/issues/18891",
        refused=True,
    ),
    # Hangs, aborts and failed requests
    KnownBad(
        combination="kv_connector_config with Eagle3",
        versions=_ALL,
        when=(_CONNECTOR, _EAGLE),
        happens="hangs where a rejected draft crosses a block's boundary",
        instead="remove kv_connector_config, or write speculation.decodingType: None",
        source=f"{_GITHUB}/issues/16448",
        refused=True,
    ),
    KnownBad(
        combination="kv_connector_config with speculation",
        versions=_ALL,
        when=(_CONNECTOR, speculates, unless(_EAGLE)),
        happens="hangs with Eagle3 where a rejected draft crosses a block's boundary; other types reject drafts, too",
        instead="try it with your load, or remove kv_connector_config",
        source=f"{_GITHUB}/issues/16448",
    ),
    KnownBad(
        combination="KV cache manager V2 and block reuse with a drafter that has a KV cache of its own",
        versions=_SINCE_1_3,
        when=(
            _version_2,
            has("kv_cache_config.enable_block_reuse", lambda reuse: reuse is not False),
            _OWN_KV_CACHE,
        ),
        happens="does not count that cache when it admits requests, so that long shared prefixes can abort the engine"
        " (manager V2 is the default of DeepSeek-V3 and V3.2, GLM-5 and Mistral Large 3)",
        instead="lower serving.maxBatchSize, or write target.kvCache.enableBlockReuse: false",
        source=f"{_GITHUB}/issues/18660",
    ),
    KnownBad(
        combination="enable_chunked_prefill with MTP or Eagle3 and the overlap scheduler",
        versions=(Dialect.V1_2,),
        when=(
            has("enable_chunked_prefill"),
            is_kind("MTP", "Eagle"),
            lambda case: not _two_models(case),
            unless(has("disable_overlap_scheduler")),
        ),
        happens="reserves no room for draft tokens, and fails requests with long prompts (total_num_tokens above"
        " max_num_tokens)",
        instead="write disable_overlap_scheduler: true, or remove enable_chunked_prefill",
        source=f"{_GITHUB}/pull/16101",
    ),
    KnownBad(
        combination="guided decoding with Eagle3 and no draft at some loads (draftLenSchedule, maxConcurrency)",
        versions=(Dialect.V1_3,),
        when=(_GUIDED, _EAGLE, any_of(_schedule_rests, _limited)),
        happens="failed at its start in release candidates up to June 2026",
        instead="draft 1 or more at every load up to serving.maxBatchSize",
        source=f"{_GITHUB}/issues/15022",
    ),
    KnownBad(
        combination="eagle_choices",
        versions=(Dialect.V1_2,),
        when=(has("speculative_config.eagle_choices"),),
        happens="has static trees in development only, and they fail",
        instead="remove it",
        source=f"{_GITHUB}/issues/10323",
        refused=True,
    ),
    # Speculation that stops, or is worth nothing
    KnownBad(
        combination="MTP on a model with sparse attention (DSA) and kv_cache_config.use_kv_cache_manager_v2 false",
        versions=_SINCE_1_3,
        when=(is_kind("MTP"), has("kv_cache_config.use_kv_cache_manager_v2", lambda asked: asked is False), _dsa),
        happens="accepts no draft token",
        instead="remove use_kv_cache_manager_v2",
        source=f"{_GITHUB}/issues/18662",
        refused=True,
    ),
    KnownBad(
        combination="MTP with kv_cache_config.use_kv_cache_manager_v2 false",
        versions=_SINCE_1_3,
        when=(
            is_kind("MTP"),
            has("kv_cache_config.use_kv_cache_manager_v2", lambda asked: asked is False),
            unless(_dsa),
        ),
        happens="accepts no draft token on models with sparse attention, such as DeepSeek-V3.2 and GLM-5",
        instead="remove use_kv_cache_manager_v2 for these",
        source=f"{_GITHUB}/issues/18662",
    ),
    KnownBad(
        combination="DSpark with an acceptance threshold",
        versions=_SINCE_1_3,
        when=(is_kind("DSpark"), any_of(_GATED, has("speculative_config.acceptance_rate_window_size"))),
        happens="sets the draft length to 0 below it, which DSpark cannot do",
        instead="remove acceptance_rate_threshold and acceptance_rate_window_size",
        source=f"{_GITHUB}/pull/16888",
        refused=True,
    ),
    KnownBad(
        combination="an acceptance threshold (acceptance_rate_threshold, in 1.2 acceptance_length_threshold)",
        versions=_ALL,
        when=(_GATED,),
        happens="stops drafting once acceptance falls below it, until the server restarts",
        instead="remove it, or restart the pods when status says SwitchedOff",
        source=f"{_GITHUB}/pull/12905",
    ),
    KnownBad(
        combination="speculation.maxConcurrency below serving.maxBatchSize",
        versions=_ALL,
        when=(_keeps_state, _limited),
        happens=_STALE,
        instead="write speculation.draftLenSchedule with 1 or more at every load up to serving.maxBatchSize",
        source=f"{_GITHUB}/pull/16888",
    ),
    KnownBad(
        combination="a speculation.draftLenSchedule that drafts nothing at some loads",
        versions=_ALL,
        when=(_keeps_state, _schedule_rests),
        happens=_STALE,
        instead="draft 1 or more at every load up to serving.maxBatchSize",
        source=f"{_GITHUB}/pull/16888",
    ),
    KnownBad(
        combination="DSpark with speculation.maxConcurrency",
        versions=_SINCE_1_3,
        when=(is_kind("DSpark"), has("speculative_config.max_concurrency")),
        happens="drafts at every load: DSpark's draft length is fixed",
        instead="remove it",
        source=f"{_GITHUB}/pull/12262",
    ),
    KnownBad(
        combination="speculation.draftLenSchedule with enable_attention_dp",
        versions=_SINCE_1_3,
        when=(_scheduled, has("enable_attention_dp")),
        happens="looks the length up by each rank's own batch, and ranks may differ",
        instead="remove one of the two, or compare outputs first",
        source=f"{_GITHUB}/pull/16888",
    ),
    # Not supported
    KnownBad(
        combination="LoRA with speculation",
        versions=(Dialect.V1_2,),
        when=(any_of(has("lora_config"), has("enable_lora")), speculates),
        happens="does not support it yet, and fails in its attention or is wrong",
        instead="compare outputs first, or write a profile with TensorRT-LLM 1.3",
        source=f"{_GITHUB}/pull/12661",
    ),
    KnownBad(
        combination="LoRA with PARD",
        versions=_SINCE_1_3,
        when=(any_of(has("lora_config"), has("enable_lora")), is_kind("PARD")),
        happens="supports LoRA with other decoding types only",
        instead="compare outputs first, or write another type",
        source=f"{_GITHUB}/pull/13007",
    ),
    KnownBad(
        combination="use_rejection_sampling with speculation.suffixAutomaton (sa_config)",
        versions=_SINCE_1_3,
        when=(
            has("speculative_config.use_rejection_sampling"),
            has("speculative_config.sa_config", lambda value: value is not None),
        ),
        happens="refuses both together",
        instead="remove one of the two",
        source=_ARGS,
        refused=True,
    ),
    KnownBad(
        combination="speculation.custom.type PARD or SA",
        versions=(Dialect.V1_2,),
        when=(is_kind("PARD", "SA"),),
        happens="does not have the type",
        instead="write another decodingType, or a profile with TensorRT-LLM 1.3",
        source=_ARGS_1_2,
        refused=True,
    ),
    *(_no_field(Dialect.V1_2, path, _ARGS_1_2) for path in _NOT_IN_1_2),
    *(_no_field(Dialect.V1_4, path, _ARGS_1_4) for path in _NOT_IN_1_4),
)
