"""The speculative BLS's settings, from the string parameters of its config.pbtxt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem_serving.parameters import canary_seconds, flag, number, queue_timeout, text
from tandem_serving.requests.refused import RefusedParameters

# Of a request's time, for a draft at most: it is to outlast two that never come, one in a shared batch and then its
# own.
DRAFT_SHARE = 0.25


@dataclass(frozen=True)
class BlsSettings:
    """What config.pbtxt says. Times in seconds; an empty `draft_model` means no draft engine.

    `target_collector` and `draft_collector`: models that collect the rows of an engine. `streams_model`: one that
    makes streaming calls of the target. `rounds_model`: one that makes whole rounds; empty: there is none.
    `mix_seed`: see loop.LoopParams.
    `max_seq_len`: tokens of a sequence that the engines have room for; 0: as many as the models take.
    `running` and `waiting` bound the sequences of one instance, `max_rows` those of one engine call (1: each
    sequence's calls by themselves). `separate_devices`: the engines run side by side. `use_draft_logits` and
    `acceptance_threshold`: see request.AcceptanceMethod, `fast_logits`: see abilities. `probe_share`: see
    service.BlsOptions. `canary_seconds`: see engine.health.IDLE. `refused`: parameters of requests without effect.
    """

    target_model: str
    draft_model: str
    target_collector: str
    draft_collector: str
    rounds_model: str
    streams_model: str
    tokenizer_dir: Path
    target_path: Path
    draft_path: Path | None
    max_seq_len: int
    max_draft_len: int
    min_draft_len: int
    adaptive: bool
    request_timeout: float
    draft_timeout: float
    running: int
    waiting: int
    max_rows: int
    separate_devices: bool
    mix_seed: bool
    queue_timeout: float
    use_draft_logits: bool
    acceptance_threshold: float | None
    fast_logits: bool
    probe_share: float
    canary_seconds: float
    refused: RefusedParameters


def read(parameters: Mapping[str, str]) -> BlsSettings:
    """Settings from a model's parameters. Raises SettingsError."""
    draft_model = parameters.get("tensorrt_llm_draft_model_name", "")
    timeout = number(parameters, "request_timeout_seconds", float, "600", 0.001)
    return BlsSettings(
        target_model=text(parameters, "tensorrt_llm_model_name"),
        draft_model=draft_model,
        target_collector=text(parameters, "tensorrt_llm_collector_name"),
        draft_collector=text(parameters, "tensorrt_llm_draft_collector_name") if draft_model else "",
        rounds_model=parameters.get("tensorrt_llm_rounds_name", ""),
        streams_model=text(parameters, "tensorrt_llm_streams_name"),
        tokenizer_dir=Path(text(parameters, "tokenizer_dir")),
        target_path=Path(text(parameters, "target_model_path")),
        draft_path=Path(text(parameters, "draft_model_path")) if draft_model else None,
        max_seq_len=number(parameters, "max_seq_len", int, "0", 0),
        max_draft_len=number(parameters, "max_draft_len", int, "0", 0),
        min_draft_len=number(parameters, "min_draft_len", int, "0", 0),
        adaptive=flag(parameters, "adaptive"),
        request_timeout=timeout,
        draft_timeout=min(number(parameters, "draft_timeout_seconds", float, "10", 0.001), DRAFT_SHARE * timeout),
        running=number(parameters, "max_running_sequences", int, "64", 1),
        waiting=number(parameters, "max_waiting_sequences", int, "1024", 0),
        max_rows=number(parameters, "max_engine_rows", int, "1", 1),
        separate_devices=flag(parameters, "separate_devices"),
        mix_seed=flag(parameters, "mix_seed"),
        queue_timeout=queue_timeout(parameters),
        use_draft_logits=flag(parameters, "use_draft_logits"),
        acceptance_threshold=_threshold(parameters),
        fast_logits=flag(parameters, "fast_logits"),
        probe_share=number(parameters, "probe_share", float, "0", 0),
        canary_seconds=canary_seconds(parameters),
        refused=RefusedParameters.parse(parameters.get("refused_parameters", "")),
    )


def _threshold(parameters: Mapping[str, str]) -> float | None:
    name = "draft_acceptance_threshold"
    return number(parameters, name, float, "", 0) if parameters.get(name) else None
