"""Requests from the tensors of TensorRT-LLM's `tensorrt_llm` Triton model.

A Triton request holds one row or more, each a sequence of its own; scalars are one value a row. Ids are
padded to the longest row: `input_lengths` says where `input_ids` end; `draft_input_ids` int32[rows, k] and
`draft_logits` float32[rows, k, V] have the same k in all rows. end_id is never part of the output nor
counted; a stop word is both. log probs are those of the logits after penalties and temperature, before
top-k and top-p; generation_logits are raw, and so are the draft_logits that a client passes on (see
`acceptance`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reference_engine.request import Request, RequestError
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
    "draft_acceptance_threshold": "it would change the target's distribution, and acceptance here never does",
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
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "temperature": "temperature",
    "seed": "seed",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "min_tokens": "min_tokens",
}


@dataclass(frozen=True)
class Row:
    """A row's request, what fills it up beside longer rows, and the optional outputs that it wants."""

    request: Request
    include_input: bool
    pad_id: int
    num_input_tokens: bool
    num_output_tokens: bool
    perf_metrics: bool


def parse(tensors: Mapping[str, Array], exclude_input: bool = False) -> list[Row]:
    """The rows of a request's input tensors by name; copies, none refers to them. Raises RequestError.

    `exclude_input`: the model's own exclude_input_in_output, for requests without it.
    """
    for name in tensors:
        if name in _UNSUPPORTED:
            raise RequestError(f"{name} is not supported: {_UNSUPPORTED[name]}; leave it out")
    ids = tensors.get("input_ids")
    if ids is None or ids.ndim != 2 or not len(ids):
        raise RequestError("input_ids is missing or not [rows, tokens], 1 row or more")
    if "input_lengths" not in tensors or "request_output_len" not in tensors:
        raise RequestError("input_lengths and request_output_len are required")
    columns = _Columns(tensors, len(ids))
    _check_limits(columns)
    return _rows(columns, _requests(columns), exclude_input)


class _Columns:
    """Tensors as lists with an entry a row: each tensor is looked at once, however many rows there are."""

    def __init__(self, tensors: Mapping[str, Array], rows: int) -> None:
        self._tensors = tensors
        self.rows = rows

    def array(self, name: str) -> Array | None:
        """A tensor [rows, ...]; None where it is absent or empty."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        if tensor.ndim == 0 or len(tensor) != self.rows:
            raise RequestError(f"{name} has shape {list(tensor.shape)}: send {self.rows} rows, as in input_ids")
        return tensor if tensor.size else None

    def scalars(self, name: str, default: Any) -> list[Any]:
        """One value a row, `default` where the tensor is absent."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return [default] * self.rows
        if tensor.size != self.rows or len(tensor) != self.rows:
            self.array(name)
            raise RequestError(f"{name} has {tensor.size // self.rows} values in a row: send 1")
        values: list[Any] = tensor.reshape(-1).tolist()
        return values

    def arrays(self, name: str, dtype: type, ndim: int) -> list[Any]:
        """An array [...] of `ndim` dimensions a row, None where the tensor is absent."""
        tensor = self.array(name)
        if tensor is None:
            return [None] * self.rows
        shape = (self.rows, -1, *tensor.shape[tensor.ndim - ndim + 1 :])
        return list(np.array(tensor, dtype).reshape(shape))

    def words(self, name: str) -> list[Words]:
        """Token sequences a row, from int32[2, m]: ids one after the other, and where each ends (then -1)."""
        tensor = self.array(name)
        return [()] * self.rows if tensor is None else [_words(name, row) for row in tensor]


def _words(name: str, row: Array) -> Words:
    if row.ndim != 2 or len(row) != 2:
        raise RequestError(f"{name} has shape {list(row.shape)} in a row: send [2, m], ids and their ends")
    ids, ends = row[0].tolist(), [end for end in row[1].tolist() if end > 0]
    if ends != sorted(ends) or (ends and ends[-1] > len(ids)):
        raise RequestError(f"{name} has the ends {ends}: they must rise, to at most {len(ids)}")
    return tuple(tuple(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False) if end > start)


def _check_limits(columns: _Columns) -> None:
    for name in _AT_MOST_ONE:
        most = max(columns.scalars(name, 1))
        if most > 1:
            raise RequestError(f"{name} is {most}: the reference engine returns one sequence, send 1")
    if any(columns.scalars("return_context_logits", False)):
        raise RequestError("return_context_logits is not supported: the reference engine keeps no logits of prompts")


def _requests(columns: _Columns) -> list[Request]:
    fields: dict[str, Sequence[Any]] = {
        "input_ids": _input_ids(columns),
        "max_new_tokens": columns.scalars("request_output_len", 0),
        "draft_ids": columns.arrays("draft_input_ids", np.int32, 1),
        "draft_logits": columns.arrays("draft_logits", np.float32, 2),
        "end_id": columns.scalars("end_id", -1),
        "stop_words": columns.words("stop_words_list"),
        "sampling": _sampling(columns),
        "streaming": columns.scalars("streaming", False),
        "log_probs": columns.scalars("return_log_probs", False),
        "logits": columns.scalars("return_generation_logits", False),
    }
    return [Request(**dict(zip(fields, values, strict=True))) for values in zip(*fields.values(), strict=True)]


def _rows(columns: _Columns, requests: list[Request], exclude_input: bool) -> list[Row]:
    excluded = columns.scalars("exclude_input_in_output", exclude_input)
    wanted = [
        columns.scalars(name, False)
        for name in ("return_num_input_tokens", "return_num_output_tokens", "return_perf_metrics")
    ]
    pads = columns.scalars("pad_id", 0)
    return [
        Row(request, not (request.streaming or without), pad, *flags)
        for request, without, pad, *flags in zip(requests, excluded, pads, *wanted, strict=True)
    ]


def _input_ids(columns: _Columns) -> list[npt.NDArray[np.int32]]:
    """Each row's ids up to its length: what is behind is padding."""
    tensor = columns.array("input_ids")
    ids = np.empty((columns.rows, 0), np.int32) if tensor is None else np.array(tensor, np.int32)
    lengths = columns.scalars("input_lengths", 0)
    for length in lengths:
        if not 0 <= length <= ids.shape[1]:
            raise RequestError(f"input_lengths is {length}, but input_ids has {ids.shape[1]} tokens")
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]


def _sampling(columns: _Columns) -> list[SamplingParams]:
    """Rows that want the same share one object."""
    names = [*_SAMPLING, "bad_words"]
    given = [columns.scalars(name, getattr(SamplingParams, field)) for field, name in _SAMPLING.items()]
    rows = list(zip(*given, columns.words("bad_words_list"), strict=True))
    if columns.array("embedding_bias") is not None:
        biases = columns.arrays("embedding_bias", np.float32, 1)
        return [
            SamplingParams(**dict(zip(names, row, strict=True)), embedding_bias=bias)
            for row, bias in zip(rows, biases, strict=True)
        ]
    made = {row: SamplingParams(**dict(zip(names, row, strict=True))) for row in set(rows)}
    return [made[row] for row in rows]
