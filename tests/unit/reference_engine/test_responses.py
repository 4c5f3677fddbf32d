from typing import Any

import numpy as np
import pytest

from reference_engine.request import Finish, Output, Stats
from reference_engine.responses import EachRow, Together
from reference_engine.tensors import parse
from support.reference_engine import inputs


def output(tokens: list[int], finish: Finish = Finish.NONE) -> Output:
    logits = [np.full(4, token, np.float32) for token in tokens]
    return Output(tokens, [-0.5] * len(tokens), logits, finish, Stats(130, 4, 3, 200, 11, 12, 13))


def told(result: dict[str, Any] | None) -> dict[str, Any]:
    """Tensors as lists; when requests arrived is left out, as it is no fixed number."""
    assert result is not None
    assert (result.pop("arrival_time_ns", np.ones(1, np.int64)) > 0).all()
    return {name: array.tolist() for name, array in result.items()}


RESPONSES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the input comes first", {}, {"output_ids": [[[5, 6, 7, 1, 2]]], "sequence_length": [[5]]}),
    ("unless excluded", {"exclude_input_in_output": [[True]]}, {"output_ids": [[[1, 2]]], "sequence_length": [[2]]}),
    ("or streaming", {"streaming": [[True]]}, {"output_ids": [[[1, 2]]], "sequence_length": [[2]]}),
    (
        "log probs",
        {"streaming": [[True]], "return_log_probs": [[True]]},
        {
            "output_ids": [[[1, 2]]],
            "sequence_length": [[2]],
            "output_log_probs": [[[-0.5, -0.5]]],
            "cum_log_probs": [[-1.0]],
        },
    ),
    (
        "counts and figures",
        {
            "streaming": [[True]],
            "return_num_input_tokens": [[True]],
            "return_num_output_tokens": [[True]],
            "return_perf_metrics": [[True]],
        },
        {
            "output_ids": [[[1, 2]]],
            "sequence_length": [[2]],
            "num_input_tokens": [[3]],
            "num_output_tokens": [[2]],
            "kv_cache_reused_blocks": [[2]],
            "kv_cache_alloc_total_blocks": [[4]],
            "kv_cache_alloc_new_blocks": [[2]],
            "first_scheduled_time_ns": [[11]],
            "first_token_time_ns": [[12]],
            "last_token_time_ns": [[13]],
            "acceptance_rate": [[0.75]],
            "total_accepted_draft_tokens": [[3]],
            "total_draft_tokens": [[4]],
        },
    ),
]


@pytest.mark.parametrize(("reason", "flags", "expected"), RESPONSES, ids=[row[0] for row in RESPONSES])
def test_response_tensors(reason: str, flags: dict[str, Any], expected: dict[str, Any]) -> None:
    result = EachRow(parse(inputs(**flags))).add(0, output([1, 2]))
    assert told(result) == expected


def test_responses_add_up() -> None:
    flags = {"streaming": [[True]], "return_log_probs": [[True]], "return_num_output_tokens": [[True]]}
    responses = EachRow(parse(inputs(**flags)))
    responses.add(0, output([1]))
    last = responses.add(0, output([2, 3], Finish.LENGTH))
    assert (last["cum_log_probs"].item(), last["num_output_tokens"].item()) == (-1.5, 3)


def test_logits_and_the_row_are_told() -> None:
    rows = parse(
        inputs(
            input_ids=[[1], [2]],
            input_lengths=[[1], [1]],
            request_output_len=[[1], [1]],
            return_generation_logits=[[True], [True]],
        )
    )
    result = EachRow(rows).add(1, output([3, 4]))
    assert result["batch_index"].item() == 1
    assert result["generation_logits"].shape == (1, 1, 2, 4)


def rows_of(count: int, **more: Any) -> Any:
    """A request of `count` rows; `more` by row. Prompts: [5], [5, 6], [5, 6, 7]."""
    ids = [[5, 6, 7]] * count
    lengths = [[1 + i] for i in range(count)]
    return parse(inputs(input_ids=ids, input_lengths=lengths, request_output_len=[[4]] * count, **more))


TOGETHER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "inputs come first, 0 fills up",
        {},
        {"output_ids": [[[5, 1, 2, 0]], [[5, 6, 0, 0]], [[5, 6, 7, 3]]], "sequence_length": [[3], [2], [4]]},
    ),
    (
        "each row's pad_id, its own inclusion of the input",
        {"pad_id": [[9], [8], [7]], "exclude_input_in_output": [[True], [True], [False]]},
        {"output_ids": [[[1, 2, 9, 9]], [[8, 8, 8, 8]], [[5, 6, 7, 3]]], "sequence_length": [[2], [0], [4]]},
    ),
    (
        "figures, asked for by any row",
        {
            "exclude_input_in_output": [[True]] * 3,
            "return_log_probs": [[True], [False], [False]],
            "return_num_input_tokens": [[False], [True], [False]],
            "return_num_output_tokens": [[False], [True], [False]],
            "return_perf_metrics": [[False], [False], [True]],
        },
        {
            "output_ids": [[[1, 2]], [[0, 0]], [[3, 0]]],
            "sequence_length": [[2], [0], [1]],
            "output_log_probs": [[[-0.5, -0.5]], [[0, 0]], [[-0.5, 0]]],
            "cum_log_probs": [[-1.0], [0], [-0.5]],
            "num_input_tokens": [[1], [2], [3]],
            "num_output_tokens": [[2], [0], [1]],
            "kv_cache_reused_blocks": [[2]] * 3,
            "kv_cache_alloc_total_blocks": [[4]] * 3,
            "kv_cache_alloc_new_blocks": [[2]] * 3,
            "first_scheduled_time_ns": [[11]] * 3,
            "first_token_time_ns": [[12]] * 3,
            "last_token_time_ns": [[13]] * 3,
            "acceptance_rate": [[0.75]] * 3,
            "total_accepted_draft_tokens": [[3]] * 3,
            "total_draft_tokens": [[4]] * 3,
        },
    ),
]


@pytest.mark.parametrize(("reason", "more", "expected"), TOGETHER, ids=[row[0] for row in TOGETHER])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]], ids=["in order", "out of order"])
def test_rows_together(order: list[int], reason: str, more: dict[str, Any], expected: dict[str, Any]) -> None:
    together = Together(rows_of(3, **more))
    outputs = [output([1, 2], Finish.LENGTH), output([], Finish.END_ID), output([3], Finish.STOP)]
    *early, result = [together.add(i, outputs[i]) for i in order]
    assert early == [None, None]
    assert result is not None
    assert {name: value for name, value in told(result).items() if name != "generation_logits"} == expected


def test_logits_of_rows_together() -> None:
    together = Together(rows_of(3, return_generation_logits=[[True]] * 3))
    together.add(0, output([1, 2], Finish.LENGTH))
    together.add(1, output([], Finish.END_ID))
    result = together.add(2, output([3], Finish.STOP))
    assert result is not None
    rows = [[1, 2], [0, 0], [3, 0]]
    assert result["generation_logits"].tolist() == [[[[token] * 4 for token in row]] for row in rows]


def test_rows_together_have_the_types_of_single_ones() -> None:
    flags = ("return_log_probs", "return_generation_logits", "return_num_output_tokens", "return_perf_metrics")
    rows = rows_of(1, **{name: [[True]] for name in flags})
    single = EachRow(rows).add(0, output([1, 2], Finish.LENGTH))
    together = Together(rows).add(0, output([1, 2], Finish.LENGTH))
    assert together is not None
    assert {name: (array.dtype, array.shape) for name, array in together.items()} == {
        name: (array.dtype, array.shape) for name, array in single.items()
    }
