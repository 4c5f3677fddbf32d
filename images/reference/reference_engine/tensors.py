"""Requests from, and outputs to, the tensors of TensorRT-LLM's `tensorrt_llm` Triton model.

A Triton request holds one row or more, each a sequence of its own; scalars are one value a row. Ids are
padded to the longest row: `input_lengths` says where `input_ids` end, `draft_input_ids` have the same
length in all rows. Responses are of one row: output_ids int32[1, 1, n], sequence_length int32[1, 1] = n.
Without streaming, output_ids hold the input too, unless exclude_input_in_output; with streaming, the new
tokens of the iteration. end_id is never part of the output nor counted; a stop word is both. log probs are
those of the logits after penalties and temperature, before top-k and top-p; generation_logits are raw.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reference_engine.kv_cache import BLOCK
from reference_engine.request import Output, Request, RequestError
from reference_engine.sampling import SamplingParams, Words

Array = npt.NDArray[Any]

_DECODER_ONLY = "the reference engine runs decoder-only text models"
_UNSUPPORTED = {
    "decoder_input_ids": _DECODER_ONLY,
    "decoder_input_lengths": _DECODER_ONLY,
    "encoder_input_features": _DECODER_ONLY,
    "encoder_output_lengths": _DECODER_ONLY,
    "cross_attention_mask": _DECODER_ONLY,
    "skip_cross_attn_blocks": _DECODER_ONLY,
    "prompt_embedding_table": _DECODER_ONLY,
    "prompt_vocab_size": _DECODER_ONLY,
    "prompt_table_extra_ids": _DECODER_ONLY,
    "mrope_rotary_cos_sin": _DECODER_ONLY,
    "mrope_position_deltas": _DECODER_ONLY,
    "draft_logits": "draft tokens are accepted by exact match",
    "draft_acceptance_threshold": "draft tokens are accepted by exact match",
    "runtime_top_p_min": "top-p stays the same for a whole request",
    "runtime_top_p_decay": "top-p stays the same for a whole request",
    "runtime_top_p_reset_ids": "top-p stays the same for a whole request",
    "beam_search_diversity_rate": "there is no beam search",
    "lora_task_id": "there is no LoRA: merge the adapter into the model",
    "lora_weights": "there is no LoRA: merge the adapter into the model",
    "lora_config": "there is no LoRA: merge the adapter into the model",
    "context_phase_params": "there is no disaggregated serving",
    "lookahead_window_size": "there is no lookahead decoding",
    "lookahead_ngram_size": "there is no lookahead decoding",
    "lookahead_verification_set_size": "there is no lookahead decoding",
    "guided_decoding_guide_type": "there is no guided decoding",
    "guided_decoding_guide": "there is no guided decoding",
}
_AT_MOST_ONE = ("beam_width", "num_return_sequences")
_SAMPLING = {
    "top_k": ("runtime_top_k", int),
    "top_p": ("runtime_top_p", float),
    "temperature": ("temperature", float),
    "seed": ("seed", int),
    "repetition_penalty": ("repetition_penalty", float),
    "presence_penalty": ("presence_penalty", float),
    "frequency_penalty": ("frequency_penalty", float),
    "min_tokens": ("min_tokens", int),
}


@dataclass(frozen=True)
class Row:
    """A row's request and the optional outputs that it wants."""

    request: Request
    index: int
    rows: int
    include_input: bool
    num_input_tokens: bool
    num_output_tokens: bool
    perf_metrics: bool


def parse(tensors: Mapping[str, Array]) -> list[Row]:
    """The rows of a request's input tensors by name. Raises RequestError."""
    for name, reason in _UNSUPPORTED.items():
        if name in tensors:
            raise RequestError(f"{name} is not supported: {reason}; leave it out")
    ids = tensors.get("input_ids")
    if ids is None or ids.ndim != 2:
        raise RequestError("input_ids is missing or not [rows, tokens]")
    if "input_lengths" not in tensors or "request_output_len" not in tensors:
        raise RequestError("input_lengths and request_output_len are required")
    return [_row(_Reader(tensors, i, len(ids))) for i in range(len(ids))]


class _Reader:
    """Values of one row."""

    def __init__(self, tensors: Mapping[str, Array], index: int, rows: int) -> None:
        self._tensors = tensors
        self.index = index
        self.rows = rows

    def array(self, name: str) -> Array | None:
        """The row's part of a tensor, None where it is absent."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        if tensor.ndim == 0 or len(tensor) != self.rows:
            raise RequestError(f"{name} has shape {list(tensor.shape)}: send {self.rows} rows, as in input_ids")
        row: Array = tensor[self.index]
        return row

    def scalar(self, name: str) -> Any:
        """The row's one value, None where it is absent."""
        row = self.array(name)
        if row is None:
            return None
        if row.size != 1:
            raise RequestError(f"{name} has {row.size} values in a row: send 1")
        return row.item()

    def flag(self, name: str) -> bool:
        """The row's flag; false where it is absent."""
        return bool(self.scalar(name))

    def words(self, name: str) -> Words:
        """Token sequences from int32[2, m]: ids one after the other, and where each ends (then -1)."""
        row = self.array(name)
        if row is None or row.size == 0:
            return ()
        if row.ndim != 2 or len(row) != 2:
            raise RequestError(f"{name} has shape {list(row.shape)} in a row: send [2, m], ids and their ends")
        ids, ends = row[0].tolist(), [end for end in row[1].tolist() if end > 0]
        if ends != sorted(ends) or (ends and ends[-1] > len(ids)):
            raise RequestError(f"{name} has the ends {ends}: they must rise, to at most {len(ids)}")
        return tuple(tuple(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False) if end > start)


def _row(reader: _Reader) -> Row:
    for name in _AT_MOST_ONE:
        if (reader.scalar(name) or 1) > 1:
            raise RequestError(f"{name} is {reader.scalar(name)}: the reference engine returns one sequence, send 1")
    if reader.flag("return_context_logits"):
        raise RequestError("return_context_logits is not supported: the reference engine keeps no logits of prompts")
    streaming = reader.flag("streaming")
    end_id = reader.scalar("end_id")
    return Row(
        request=Request(
            input_ids=_input_ids(reader),
            max_new_tokens=reader.scalar("request_output_len"),
            draft_ids=_draft_ids(reader),
            end_id=-1 if end_id is None else end_id,
            stop_words=reader.words("stop_words_list"),
            sampling=_sampling(reader),
            streaming=streaming,
            log_probs=reader.flag("return_log_probs"),
            logits=reader.flag("return_generation_logits"),
        ),
        index=reader.index,
        rows=reader.rows,
        include_input=not (streaming or reader.flag("exclude_input_in_output")),
        num_input_tokens=reader.flag("return_num_input_tokens"),
        num_output_tokens=reader.flag("return_num_output_tokens"),
        perf_metrics=reader.flag("return_perf_metrics"),
    )


def _input_ids(reader: _Reader) -> npt.NDArray[np.int32]:
    ids, length = reader.array("input_ids"), reader.scalar("input_lengths")
    if ids is None or not 0 <= length <= len(ids):
        raise RequestError(f"input_lengths is {length}, but input_ids has {0 if ids is None else len(ids)} tokens")
    return np.array(ids[:length], np.int32)


def _draft_ids(reader: _Reader) -> npt.NDArray[np.int32] | None:
    ids = reader.array("draft_input_ids")
    return np.array(ids.reshape(-1), np.int32) if ids is not None and ids.size else None


def _sampling(reader: _Reader) -> SamplingParams:
    values: dict[str, Any] = {}
    for field, (name, kind) in _SAMPLING.items():
        value = reader.scalar(name)
        if value is not None:
            values[field] = kind(value)
    bias = reader.array("embedding_bias")
    if bias is not None and bias.size:
        values["embedding_bias"] = np.array(bias.reshape(-1), np.float32)
    return SamplingParams(**values, bad_words=reader.words("bad_words_list"))


class Responses:
    """Turns one row's outputs into response tensors."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._generated = 0
        self._cum_log_prob = 0.0

    def tensors(self, output: Output) -> dict[str, Array]:
        """Response tensors by name, for the row's next output."""
        row = self._row
        self._generated += len(output.tokens)
        new = np.array(output.tokens, np.int32)
        ids = np.concatenate([row.request.input_ids, new]) if row.include_input else new
        tensors: dict[str, Array] = {"output_ids": ids[None, None], "sequence_length": _int(len(ids))}
        if row.rows > 1:
            tensors["batch_index"] = _int(row.index)
        if row.request.log_probs:
            self._cum_log_prob += sum(output.log_probs)
            tensors["output_log_probs"] = np.array(output.log_probs, np.float32)[None, None]
            tensors["cum_log_probs"] = np.array([[self._cum_log_prob]], np.float32)
        if row.request.logits and output.logits:
            tensors["generation_logits"] = np.stack(output.logits)[None, None]
        if row.num_input_tokens:
            tensors["num_input_tokens"] = _int(len(row.request.input_ids))
        if row.num_output_tokens:
            tensors["num_output_tokens"] = _int(self._generated)
        return tensors | (_perf_metrics(output) if row.perf_metrics else {})


def _perf_metrics(output: Output) -> dict[str, Array]:
    stats = output.stats
    rate = stats.accepted_draft_tokens / stats.draft_tokens if stats.draft_tokens else 0.0
    return {
        "kv_cache_reused_blocks": _int(stats.reused_tokens // BLOCK),
        "acceptance_rate": np.array([[rate]], np.float32),
        "total_accepted_draft_tokens": _int(stats.accepted_draft_tokens),
        "total_draft_tokens": _int(stats.draft_tokens),
    }


def _int(value: int) -> Array:
    return np.array([[value]], np.int32)
