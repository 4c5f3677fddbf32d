"""The metric families that are read, and the field of `PodFigures` that each becomes.

They are those of `tandem_serving.metrics`; a test holds the two together. `tandem_draft_length` is of the latest
round alone: the mean draft length comes from the counters.
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
MAX_POSITIONS = 32
"""The largest `speculation.maxDraftLen`."""
GAUGES: Mapping[str, str] = {
    "tandem_requests_running": "running",
    "tandem_requests_waiting": "waiting",
}
HISTOGRAMS: Mapping[str, str] = {
    "tandem_time_to_first_token_seconds": "time_to_first_token",
    "tandem_inter_token_latency_seconds": "inter_token_latency",
    "tandem_request_latency_seconds": "request_latency",
    "tandem_probe_inter_token_latency_seconds": "probe_latency",
}
NAMES = (
    *COUNTERS,
    ACCEPTED_PER_POSITION,
    *GAUGES,
    *(f"{family}_{part}" for family in HISTOGRAMS for part in ("bucket", "sum")),
)
"""Names of the series; a histogram's `_count` is its last bucket."""
