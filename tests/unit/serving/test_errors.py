"""What clients hear of an engine's error."""

import pytest

from tandem_serving.errors import without_trace

CHECK = "Assertion failed: Input length (9) + max new tokens (9) must be less (decoder.cpp:97)"


@pytest.mark.parametrize(
    ("message", "heard", "reason"),
    [
        ("out of order\n\nAt:\n  /models/1/model.py(9): execute\n", "out of order", "a Python model's"),
        (f"{CHECK}\n1       0x7f libtensorrt_llm.so(+0x7a) [0x7f]\n2       0x7e", CHECK, "TensorRT-LLM's"),
        ("two lines:\n1 of them", "two lines:\n1 of them", "no trace"),
    ],
    ids=["Python", "C++", "none"],
)
def test_no_trace(message: str, heard: str, reason: str) -> None:
    assert without_trace(message) == heard, reason
