"""What calls take, as far as it is known."""

import pytest

from tandem_serving.bls.call_times import CallTimes


def test_what_a_call_takes_is_known_by_its_length_and_follows_what_is_seen() -> None:
    times = CallTimes()
    times.timed("draft", 4, 0.008)
    assert (times.expected("draft", 4), times.expected("draft", 5)) == (0.008, None)
    times.timed("draft", 4, 0.013)
    assert times.expected("draft", 4) == pytest.approx(0.009)


def test_a_machine_that_stalls_is_no_slow_engine() -> None:
    times = CallTimes()
    times.timed("target", 5, 0.012)
    times.timed("target", 5, 1.0)
    assert times.expected("target", 5) == pytest.approx(0.0144)
