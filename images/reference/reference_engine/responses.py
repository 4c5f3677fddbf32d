"""Outputs of the engine as the tensors of TensorRT-LLM's `tensorrt_llm` Triton model.

A response is of one row, as TensorRT-LLM's: output_ids int32[1, 1, n], sequence_length int32[1, 1] = n, and
`batch_index` where the request has several. Without streaming, output_ids hold the input too, unless
exclude_input_in_output; with streaming, the new tokens of the iteration. output_log_probs float32[1, 1, m]
and generation_logits float32[1, 1, m, V] are of the m new tokens, cum_log_probs float32[1, 1] is the sum
over the call.

`Together` makes one response of all rows when the last has ended: the same tensors with a row each, filled
up behind the shorter ones (output_ids with pad_id, figures with 0). There an output is sent when any row
wants it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reference_engine.kv_cache import BLOCK, blocks
from reference_engine.request import Output
from reference_engine.tensors import Row

Array = npt.NDArray[Any]
Tensors = dict[str, Array]


class Responses(Protocol):
    """Responses of one request; the rows' outputs come in any order."""

    def add(self, index: int, output: Output) -> Tensors | None:
        """The response to send now that row `index` has this output; None: none yet."""
        ...


class EachRow:
    """A response for each output of each row."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = [_RowTensors(row) for row in rows]

    def add(self, index: int, output: Output) -> Tensors:
        """See Responses."""
        tensors = self._rows[index].add(output)
        if len(self._rows) > 1:
            tensors["batch_index"] = _int(index)
        return tensors


class Together:
    """One response for all rows, which must not be streaming: each has one output."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._outputs: list[Output | None] = [None] * len(rows)

    def add(self, index: int, output: Output) -> Tensors | None:
        """See Responses."""
        self._outputs[index] = output
        outputs = [each for each in self._outputs if each is not None]
        if len(outputs) < len(self._rows):
            return None
        return _joined(self._rows, outputs)


class _RowTensors:
    """Turns one row's outputs into tensors."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._generated = 0
        self._cum_log_prob = 0.0

    def add(self, output: Output) -> Tensors:
        """Tensors of the row's next output."""
        row = self._row
        self._generated += len(output.tokens)
        ids = _ids(row, output)
        tensors: Tensors = {"output_ids": ids[None, None], "sequence_length": _int(len(ids))}
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
        return tensors | (_perf_metrics([row], [output]) if row.perf_metrics else {})


def _joined(rows: Sequence[Row], outputs: Sequence[Output]) -> Tensors:
    ids = [_ids(row, output) for row, output in zip(rows, outputs, strict=True)]
    tensors: Tensors = {
        "output_ids": _padded_ids(ids, [row.pad_id for row in rows]),
        "sequence_length": _column([len(each) for each in ids]),
    }
    if any(row.request.log_probs for row in rows):
        tensors["output_log_probs"] = _padded([np.array(output.log_probs, np.float32) for output in outputs])
        tensors["cum_log_probs"] = _column([sum(output.log_probs) for output in outputs], np.float32)
    if any(output.logits for output in outputs):
        width = next(len(output.logits[0]) for output in outputs if output.logits)
        empty = np.empty((0, width), np.float32)
        tensors["generation_logits"] = _padded([np.stack(o.logits) if o.logits else empty for o in outputs])
    if any(row.num_input_tokens for row in rows):
        tensors["num_input_tokens"] = _column([len(row.request.input_ids) for row in rows])
    if any(row.num_output_tokens for row in rows):
        tensors["num_output_tokens"] = _column([len(output.tokens) for output in outputs])
    return tensors | (_perf_metrics(rows, outputs) if any(row.perf_metrics for row in rows) else {})


def _ids(row: Row, output: Output) -> npt.NDArray[np.int32]:
    new = np.array(output.tokens, np.int32)
    return np.concatenate([row.request.input_ids, new]) if row.include_input else new


def _padded_ids(ids: Sequence[npt.NDArray[np.int32]], pads: Sequence[int]) -> Array:
    """int32[rows, 1, longest]; each row's pad behind its ids."""
    out = np.empty((len(ids), 1, max(map(len, ids))), np.int32)
    out[:] = np.array(pads, np.int32)[:, None, None]
    for row, each in zip(out, ids, strict=True):
        row[0, : len(each)] = each
    return out


def _padded(parts: Sequence[Array]) -> Array:
    """float32[rows, 1, longest, ...] of parts [n, ...]; 0 behind the shorter ones."""
    out = np.zeros((len(parts), 1, max(map(len, parts)), *parts[0].shape[1:]), np.float32)
    for row, each in zip(out, parts, strict=True):
        row[0, : len(each)] = each
    return out


def _perf_metrics(rows: Sequence[Row], outputs: Sequence[Output]) -> Tensors:
    """TensorRT-LLM's figures of a request; blocks of the KV cache hold BLOCK tokens."""
    stats = [output.stats for output in outputs]
    rates = [each.accepted_draft_tokens / each.draft_tokens if each.draft_tokens else 0.0 for each in stats]
    reused, total = [each.reused_tokens // BLOCK for each in stats], [blocks(each.cached_tokens) for each in stats]
    return {
        "kv_cache_reused_blocks": _column(reused),
        "kv_cache_alloc_total_blocks": _column(total),
        "kv_cache_alloc_new_blocks": _column([all_ - old for all_, old in zip(total, reused, strict=True)]),
        "arrival_time_ns": _column([row.request.arrival_ns for row in rows], np.int64),
        "first_scheduled_time_ns": _column([each.first_scheduled_ns for each in stats], np.int64),
        "first_token_time_ns": _column([each.first_token_ns for each in stats], np.int64),
        "last_token_time_ns": _column([each.last_token_ns for each in stats], np.int64),
        "acceptance_rate": _column(rates, np.float32),
        "total_accepted_draft_tokens": _column([each.accepted_draft_tokens for each in stats]),
        "total_draft_tokens": _column([each.draft_tokens for each in stats]),
    }


def _int(value: int) -> Array:
    return _column([value])


def _column(values: Sequence[float], dtype: type = np.int32) -> Array:
    return np.array(values, dtype).reshape(-1, 1)
