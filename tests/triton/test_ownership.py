"""Our C++ on a Triton whose functions fail: each error, response and request is freed once, by whom it belongs to."""

import ctypes
import functools
from pathlib import Path

import pytest

from triton import backends

pytestmark = pytest.mark.nightly

ALL = 1_000_000


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(backends.compiled(Path(__file__).with_name("ownership") / "ownership.cpp")))


def play(scenario: str, first: int, fails: int, engine_fails: bool) -> tuple[int, str]:
    """Calls of Triton's functions that it took where `fails` fail from the `first` on, and what was wrong."""
    faults = ctypes.c_char_p()
    calls = library().PlayFailing(scenario.encode(), first, fails, engine_fails, ctypes.byref(faults))
    return calls, (faults.value or b"").decode()


@pytest.mark.parametrize("fails", [1, 2, ALL])
@pytest.mark.parametrize("engine_fails", [False, True])
@pytest.mark.parametrize("scenario", ["collector", "streams", "rounds"])
def test_whatever_fails_all_is_freed_once(scenario: str, engine_fails: bool, fails: int) -> None:
    calls, faults = play(scenario, 1, 0, engine_fails)
    assert calls > 40
    assert faults == ""
    wrong = {n: found for n in range(1, calls + 1) if (found := play(scenario, n, fails, engine_fails)[1])}
    assert wrong == {}
