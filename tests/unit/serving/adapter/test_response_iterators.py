"""Response iterators outlive the reference that Triton drops, on a thread of its own, after the last response."""

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from tandem_serving.adapter.response_iterators import MOST_BYTES, RESPONSE_BYTES, SECONDS, Recent, responses
from tandem_serving.requests.tensors import Array


class Tensor:
    def __init__(self, size: int) -> None:
        self._size = size

    def as_numpy(self) -> Array:
        return np.empty(self._size, np.int8)


class Answer:
    """A response; `error`: without tensors."""

    def __init__(self, size: int, error: bool) -> None:
        self._size, self._error = size, error

    def has_error(self) -> bool:
        return self._error

    def output_tensors(self) -> list[Tensor]:
        assert not self._error
        return [Tensor(self._size // 2), Tensor(self._size // 2)]


class Answers:
    """Like the stub's iterator: a response each time, until the last, which is an error."""

    def __init__(self, left: int, size: int = 0) -> None:
        self.left = left
        self._size = size

    def __iter__(self) -> Iterator[Answer]:
        return self

    def __next__(self) -> Answer:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return Answer(self._size, error=self.left == 0)


class Call:
    """A call; it holds on to its iterator only weakly."""

    seen: "weakref.ref[Answers]"

    def __init__(self, size: int = 0) -> None:
        self._size = size

    def exec(self, *, decoupled: bool) -> Answers:
        assert decoupled
        made = Answers(3, self._size)
        self.seen = weakref.ref(made)
        return made


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("read", [3, 1], ids=["to the end", "given up after the first response"])
@pytest.mark.parametrize("lasts", [0.1, 5 * SECONDS], ids=["short call", "long call"])
def test_kept_after_the_end_however_long_the_call(read: int, lasts: float) -> None:
    clock = Clock()
    recent, call = Recent(clock), Call()
    made = responses(call, recent)
    assert [next(made).has_error() for _ in range(read)] == [False, False, True][:read]
    clock.now += lasts
    for _ in responses(Call(), recent):  # others end meanwhile
        pass
    if read == 3:
        assert next(made, None) is None
    else:
        made.close()  # type: ignore[attr-defined]
    del made
    gc.collect()
    assert call.seen() is not None
    clock.now += SECONDS - 0.1
    recent.keep(None)
    assert call.seen() is not None
    clock.now += 0.2
    recent.keep(None)
    assert call.seen() is None


@pytest.mark.parametrize(
    ("size", "most"),
    [
        pytest.param(0, MOST_BYTES // (3 * RESPONSE_BYTES), id="small ones: they are objects, too"),
        pytest.param(MOST_BYTES // 3, 1, id="three responses of a third of all bytes each"),
        pytest.param(MOST_BYTES // 16, 5, id="three responses of a sixteenth each"),
        pytest.param(2 * MOST_BYTES, 1, id="the latest in any case"),
    ],
)
def test_no_more_are_kept_than_memory_allows(size: int, most: int) -> None:
    recent, calls = Recent(Clock()), [Call(size) for _ in range(most + 3)]
    for call in calls:
        for _ in responses(call, recent):
            pass
    gc.collect()
    assert [call.seen() is not None for call in calls] == [False] * 3 + [True] * most
