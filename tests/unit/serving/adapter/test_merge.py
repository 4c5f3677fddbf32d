import numpy as np

from tandem_serving.adapter.merge import merge
from tandem_serving.requests.tensors import Array


def row(index: int, ids: list[int], text: bytes) -> dict[str, Array]:
    return {
        "batch_index": np.array([[index]], np.int32),
        "output_ids": np.array([ids], np.int32),
        "text_output": np.array([[text]], np.object_),
        "output_log_probs": np.array([[ids]], np.float32),
    }


def test_rows_stand_in_the_order_of_their_prompts_and_are_filled_up() -> None:
    merged = merge([row(2, [7], b"c"), row(0, [1, 2, 3], b"a"), row(1, [4, 5], b"b")])
    assert merged["batch_index"].tolist() == [[0], [1], [2]]
    assert merged["output_ids"].tolist() == [[1, 2, 3], [4, 5, 0], [7, 0, 0]]
    assert merged["text_output"].tolist() == [[b"a"], [b"b"], [b"c"]]
    assert merged["output_log_probs"].shape == (3, 1, 3)


def test_one_row_stays_as_it_is() -> None:
    alone = row(0, [], b"")
    merged = merge([alone])
    assert {name: value.tolist() for name, value in merged.items()} == {n: v.tolist() for n, v in alone.items()}
    assert {name: value.dtype for name, value in merged.items()} == {n: v.dtype for n, v in alone.items()}


def test_a_row_may_lack_what_others_have() -> None:
    more: dict[str, Array] = {
        "acceptance_rate": np.array([0.5], np.float32),
        "stop_reason": np.array([b"end"], np.object_),
    }
    drafted = row(0, [1], b"a") | more
    for rows in ([drafted, row(1, [2], b"b")], [row(1, [2], b"b"), drafted]):
        merged = merge(rows)
        assert merged["acceptance_rate"].tolist() == [0.5, 0]
        assert merged["stop_reason"].tolist() == [b"end", b""]
