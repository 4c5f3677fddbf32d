"""What is compared of sequences' tensors at each engine call."""

import numpy as np
import pytest

from tandem_serving.bls.sequence import EngineInputs, TensorValues
from tandem_serving.requests.tensors import Array

END = np.array([[7]], np.int32)

# tensors of a sequence, whether a sequence with `end_id` 7 alone has the same, why
TENSORS = [
    ({"end_id": END.copy()}, True, "equal numbers in another array"),
    ({"end_id": np.array([[8]], np.int32)}, False, "another number"),
    ({"end_id": np.array([[7]], np.uint32)}, False, "another type with the same bytes"),
    ({"end_id": np.array([7], np.int32)}, False, "another shape"),
    ({"pad_id": END.copy()}, False, "another tensor"),
    ({"end_id": END.copy(), "pad_id": END.copy()}, False, "one tensor more"),
]


@pytest.mark.parametrize(("tensors", "same", "why"), TENSORS)
def test_values_are_one_object_for_equal_tensors(tensors: dict[str, Array], same: bool, why: str) -> None:
    first = EngineInputs({"end_id": END})
    assert first.values is not None
    assert (EngineInputs(tensors).values is first.values) == same, why


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros((1, 2048), np.float32), "an embedding bias: too large to compare at each call"),
        (np.array([[b"{}"]], np.object_), "a guide: its bytes are addresses of texts"),
    ],
)
def test_what_is_not_a_few_numbers_is_not_compared(array: Array, why: str) -> None:
    assert EngineInputs({"end_id": END, "more": array}).values is None, why


def test_values_go_with_their_last_sequence() -> None:
    """Clients choose temperatures and the like: what they sent once is not kept for ever."""
    odd = {"temperature": np.array([[0.123456]], np.float32)}
    known = len(TensorValues._known)
    inputs = EngineInputs(odd)
    assert len(TensorValues._known) == known + 1
    del inputs
    assert len(TensorValues._known) == known
