from typing import Any

import numpy as np
import pytest

from reference_engine import tensors
from reference_engine.request import RequestError
from support.reference_engine import inputs


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


@pytest.mark.parametrize("of_the_model", [True, False])
@pytest.mark.parametrize("of_the_request", [True, False, None])
def test_the_request_says_whether_it_wants_its_input_back_else_the_model(
    of_the_model: bool, of_the_request: bool | None
) -> None:
    sent = None if of_the_request is None else [of_the_request]
    [row] = tensors.parse(inputs(exclude_input_in_output=sent), exclude_input=of_the_model)
    assert row.include_input is not (of_the_model if of_the_request is None else of_the_request)


def test_rows_are_cut_to_their_lengths() -> None:
    rows = tensors.parse(
        inputs(
            input_ids=[[5, 6, 7], [8, 0, 0]], input_lengths=[[3], [1]], request_output_len=[[4], [9]], seed=[[1], [2]]
        )
    )
    assert [row.request.input_ids.tolist() for row in rows] == [[5, 6, 7], [8]]
    assert [(row.request.max_new_tokens, row.request.sampling.seed) for row in rows] == [(4, 1), (9, 2)]


def test_draft_tokens_and_their_logits() -> None:
    two = {"input_ids": [[5], [6]], "input_lengths": [[1]] * 2, "request_output_len": [[3]] * 2}
    ids, logits = [[1, 2], [3, 4]], [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    for i, row in enumerate(tensors.parse(inputs(**two, draft_input_ids=ids, draft_logits=logits))):
        assert row.request.draft_ids is not None
        assert (row.request.draft_ids.dtype.name, row.request.draft_ids.tolist()) == ("int32", ids[i])
        assert row.request.draft_logits is not None
        assert (row.request.draft_logits.dtype.name, row.request.draft_logits.tolist()) == ("float32", logits[i])


def test_rows_outlive_the_tensors() -> None:
    given = inputs(draft_input_ids=[[1]], draft_logits=[[[0.5, 1]]], embedding_bias=[[1.0, 2]])
    given = {name: np.array(array, np.int32 if "ids" in name else np.float32) for name, array in given.items()}
    given |= {name: given[name].astype(np.int32) for name in ("input_lengths", "request_output_len")}
    [row] = tensors.parse(given)
    for array in given.values():
        array[...] = 99
    request = row.request
    kept = (request.input_ids, request.draft_ids, request.draft_logits, request.sampling.embedding_bias)
    assert [array.tolist() for array in kept if array is not None] == [[5, 6, 7], [1], [[0.5, 1]], [1, 2]]


def test_rows_that_sample_differently() -> None:
    rows = tensors.parse(
        inputs(input_ids=[[5]] * 3, input_lengths=[[1]] * 3, request_output_len=[[1]] * 3, seed=[[1], [2], [1]])
    )
    assert [row.request.sampling.seed for row in rows] == [1, 2, 1]


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
    ("no rows", {"input_ids": np.empty((0, 3)), "input_lengths": [], "request_output_len": []}, "1 row or more"),
    ("flat ids", {"input_ids": [1, 2]}, "input_ids is missing or not [rows, tokens]"),
    ("no lengths", {"input_lengths": None}, "input_lengths and request_output_len are required"),
    ("a length beyond the ids", {"input_lengths": [[4]]}, "input_lengths is 4, but input_ids has 3 tokens"),
    ("beams", {"beam_width": [[2]]}, "beam_width is 2"),
    ("several sequences", {"num_return_sequences": [[3]]}, "num_return_sequences is 3"),
    ("context logits", {"return_context_logits": [[True]]}, "return_context_logits is not supported"),
    (
        "lossy acceptance",
        {"draft_acceptance_threshold": [[0.9]]},
        "draft_acceptance_threshold is not supported: it would change the target's distribution",
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
