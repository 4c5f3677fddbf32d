from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine import tensors
from reference_engine.request import Finish, Output, RequestError, Stats

Array = npt.NDArray[Any]


def inputs(**more: Any) -> dict[str, Array]:
    """A valid request of one row, with these tensors beside or instead."""
    required = {"input_ids": [[5, 6, 7]], "input_lengths": [[3]], "request_output_len": [[4]]}
    return {name: np.array(value) for name, value in {**required, **more}.items() if value is not None}


def test_scalars_reach_the_request_whatever_their_shape() -> None:
    given = {"runtime_top_k": 3, "runtime_top_p": 0.5, "temperature": 2.0, "seed": 2**64 - 1, "min_tokens": 2}
    shaped: dict[str, Any] = {}
    for i, (name, value) in enumerate(given.items()):
        shaped[name] = np.array(value, np.uint64 if name == "seed" else None).reshape([(1,), (1, 1)][i % 2])
    [row] = tensors.parse(inputs(**shaped, end_id=[0], exclude_input_in_output=[True]))
    params = row.request.sampling
    assert (params.top_k, params.top_p, params.temperature, params.min_tokens) == (3, 0.5, 2.0, 2)
    assert params.seed == 2**64 - 1
    assert (row.request.end_id, row.request.max_new_tokens, row.include_input) == (0, 4, False)


def test_what_is_absent_has_tensorrt_llms_defaults() -> None:
    [row] = tensors.parse(inputs())
    assert row.request.input_ids.tolist() == [5, 6, 7]
    assert row.request.draft_ids is None
    assert row.request.end_id == -1
    assert row.request.sampling.greedy
    assert (row.include_input, row.request.streaming) == (True, False)


def test_rows_are_cut_to_their_lengths() -> None:
    rows = tensors.parse(
        inputs(
            input_ids=[[5, 6, 7], [8, 0, 0]], input_lengths=[[3], [1]], request_output_len=[[4], [9]], seed=[[1], [2]]
        )
    )
    assert [row.request.input_ids.tolist() for row in rows] == [[5, 6, 7], [8]]
    assert [(row.index, row.rows, row.request.max_new_tokens, row.request.sampling.seed) for row in rows] == [
        (0, 2, 4, 1),
        (1, 2, 9, 2),
    ]


WORDS = [
    ("two words", [[[7, 8, 9], [2, 3, -1]]], ((7, 8), (9,))),
    ("none, padded", [[[0], [-1]]], ()),
    ("padding behind", [[[7, 0, 0], [1, -1, -1]]], ((7,),)),
]


@pytest.mark.parametrize(("reason", "value", "expected"), WORDS, ids=[row[0] for row in WORDS])
def test_word_lists(reason: str, value: Any, expected: Any) -> None:
    [row] = tensors.parse(inputs(stop_words_list=value, bad_words_list=value))
    assert row.request.stop_words == row.request.sampling.bad_words == expected


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no ids", {"input_ids": None}, "input_ids is missing"),
    ("flat ids", {"input_ids": [1, 2]}, "input_ids is missing or not [rows, tokens]"),
    ("no lengths", {"input_lengths": None}, "input_lengths and request_output_len are required"),
    ("a length beyond the ids", {"input_lengths": [[4]]}, "input_lengths is 4, but input_ids has 3 tokens"),
    ("beams", {"beam_width": [[2]]}, "beam_width is 2"),
    ("several sequences", {"num_return_sequences": [[3]]}, "num_return_sequences is 3"),
    ("context logits", {"return_context_logits": [[True]]}, "return_context_logits is not supported"),
    (
        "draft logits",
        {"draft_logits": [[[1.0]]]},
        "draft_logits is not supported: draft tokens are accepted by exact",
    ),
    ("LoRA", {"lora_task_id": [[1]]}, "lora_task_id is not supported: there is no LoRA"),
    ("images", {"prompt_embedding_table": [[[1.0]]]}, "prompt_embedding_table is not supported"),
    ("rows that do not match", {"seed": [[1], [2]]}, "seed has shape [2, 1]: send 1 rows"),
    ("two values for one", {"seed": [[1, 2]]}, "seed has 2 values in a row: send 1"),
    ("words without ends", {"stop_words_list": [[7, 8]]}, "stop_words_list has shape [2] in a row: send [2, m]"),
    ("ends beyond the words", {"bad_words_list": [[[7], [2]]]}, "bad_words_list has the ends [2]"),
]


@pytest.mark.parametrize(("reason", "changes", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_wrong_tensors_are_refused(reason: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as error:
        tensors.parse(inputs(**changes))
    assert message in str(error.value)


def output(tokens: list[int], finish: Finish = Finish.NONE) -> Output:
    logits = [np.full(4, token, np.float32) for token in tokens]
    return Output(tokens, [-0.5] * len(tokens), logits, finish, Stats(130, 4, 3))


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
            "acceptance_rate": [[0.75]],
            "total_accepted_draft_tokens": [[3]],
            "total_draft_tokens": [[4]],
        },
    ),
]


@pytest.mark.parametrize(("reason", "flags", "expected"), RESPONSES, ids=[row[0] for row in RESPONSES])
def test_response_tensors(reason: str, flags: dict[str, Any], expected: dict[str, Any]) -> None:
    [row] = tensors.parse(inputs(**flags))
    result = tensors.Responses(row).tensors(output([1, 2]))
    assert {name: array.tolist() for name, array in result.items()} == expected


def test_responses_add_up() -> None:
    flags = {"streaming": [[True]], "return_log_probs": [[True]], "return_num_output_tokens": [[True]]}
    [row] = tensors.parse(inputs(**flags))
    responses = tensors.Responses(row)
    responses.tensors(output([1]))
    last = responses.tensors(output([2, 3], Finish.LENGTH))
    assert (last["cum_log_probs"].item(), last["num_output_tokens"].item()) == (-1.5, 3)


def test_logits_and_the_row_are_told() -> None:
    rows = tensors.parse(
        inputs(
            input_ids=[[1], [2]],
            input_lengths=[[1], [1]],
            request_output_len=[[1], [1]],
            return_generation_logits=[[True], [True]],
        )
    )
    result = tensors.Responses(rows[1]).tensors(output([3, 4]))
    assert result["batch_index"].item() == 1
    assert result["generation_logits"].shape == (1, 1, 2, 4)
