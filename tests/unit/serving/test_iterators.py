"""Response iterators outlive the reference that Triton drops, on a thread of its own, after the last response."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tandem_serving.iterators import SECONDS, Recent, responses


class Answers:
    """Like the stub's iterator: a response each time, until the last."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Call:
    """A call; it holds on to its iterator only weakly."""

    seen: "weakref.ref[Answers]"

    def exec(self, *, decoupled: bool) -> Answers:
        assert decoupled
        made = Answers(3)
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
    assert [next(made) for _ in range(read)] == [2, 1, 0][:read]
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
