"""The metric families that are read, and the field of `PodFigures` that each becomes.

Tandem's are those of `tandem_serving.metrics`; a test holds the two together. `tandem_draft_length` is of the latest
round alone: the mean draft length comes from the counters.

The engines' own are those of TensorRT-LLM's Triton backend, each by the label that says which number it is; other
engines have them under a prefix of Tandem's.
Source: TensorRT-LLM, triton_backend/inflight_batcher_llm/src/custom_metrics_reporter/custom_metrics_reporter.cc
"""

from collections.abc import Mapping

COUNTERS: Mapping[str, str] = {
    "tandem_spec_decode_num_drafts_total": "rounds",
    "tandem_spec_decode_num_draft_tokens_total": "draft_tokens",
    "tandem_spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "tandem_spec_decode_draft_failures_total": "draft_failures",
    "tandem_probe_sequences_total": "probe_sequences",
    "tandem_prompt_tokens_total": "prompt_tokens",
    "tandem_generation_tokens_total": "generation_tokens",
    "tandem_requests_refused_total": "refused",
}
ACCEPTED_PER_POSITION = "tandem_spec_decode_num_accepted_tokens_per_pos_total"
"""A counter with the label `position`: 0 is the draft's first token."""
_PREFIXES = ("nv_trt_llm", "tandem_engine")
"""TensorRT-LLM's, and that of other engines."""
ENGINE_LABELS: Mapping[str, str] = {
    f"{prefix}_{family}": label
    for prefix in _PREFIXES
    for family, label in (
        ("kv_cache_block_metrics", "kv_cache_block_type"),
        ("request_metrics", "request_type"),
    )
}
"""The engines' own families, and the label that says which number of theirs it is."""
TARGETS = ("tensorrt_llm", "tensorrt_llm_engine")
"""The models whose engine is read, by their label `model` (a server has one of them): where there is a draft's, its
cache holds as many tokens."""
OWN_GAUGES: Mapping[tuple[str, str], str] = {
    ("tandem_requests_running", ""): "running",
    ("tandem_requests_waiting", ""): "waiting",
}
GAUGES: Mapping[tuple[str, str], str] = {
    **OWN_GAUGES,
    **{
        (f"{prefix}_{family}", number): name
        for prefix in _PREFIXES
        for family, number, name in (
            ("kv_cache_block_metrics", "max", "kv_blocks"),
            ("kv_cache_block_metrics", "used", "kv_blocks_used"),
            ("request_metrics", "active", "engine_requests"),
        )
    },
}
"""By family and, of the engines', by what its label says."""
GAUGE_FIELDS = tuple(dict.fromkeys(GAUGES.values()))
HISTOGRAMS: Mapping[str, str] = {
    "tandem_time_to_first_token_seconds": "time_to_first_token",
    "tandem_inter_token_latency_seconds": "inter_token_latency",
    "tandem_request_latency_seconds": "request_latency",
    "tandem_probe_inter_token_latency_seconds": "probe_latency",
}
NAMES = (
    *COUNTERS,
    ACCEPTED_PER_POSITION,
    *(family for family, _ in OWN_GAUGES),
    *ENGINE_LABELS,
    *(f"{family}_{part}" for family in HISTOGRAMS for part in ("bucket", "sum")),
)
"""Names of the series; a histogram's `_count` is its last bucket."""
