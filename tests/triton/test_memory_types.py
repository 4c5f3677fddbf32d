"""Inputs that are no memory of the host, as in CUDA shared memory: an error, where reading them ends the server.

No machine with a GPU is needed: the backends' own code is compiled and called, without a server.
"""

import ctypes
from pathlib import Path

import pytest

from triton import backends

CPU, PINNED, GPU = range(3)


@pytest.mark.parametrize(
    ("memory", "answer"),
    [(CPU, ""), (PINNED, ""), (GPU, "input_ids is on a GPU: send it in the memory of the host")],
)
def test_an_input_on_a_gpu_is_not_read(memory: int, answer: str) -> None:
    library = ctypes.CDLL(str(backends.compiled(Path(__file__).with_name("memory_types") / "memory_types.cpp")))
    library.ReadFrom.restype = ctypes.c_char_p
    assert library.ReadFrom(memory).decode() == answer
