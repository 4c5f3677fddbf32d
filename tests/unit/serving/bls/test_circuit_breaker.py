import pytest

from tandem_serving.bls.circuit_breaker import CircuitBreaker


def answered() -> CircuitBreaker:
    """Of an engine that has answered once."""
    breaker = CircuitBreaker()
    breaker.worked()
    return breaker


@pytest.mark.parametrize("late", [False, True], ids=["fails", "is late"])
def test_drafts_pause_after_failures_longer_each_time_and_come_back(late: bool) -> None:
    breaker = answered()
    if not late:
        for _ in range(CircuitBreaker.FAILURES - 1):
            breaker.failed(10)
        assert breaker.closed, "one bad request is not an engine that is down"
    breaker.failed(10, late)
    assert not breaker.closed
    tries = [breaker.may_try(10 + s) for s in (0, CircuitBreaker.FIRST / 2, CircuitBreaker.FIRST)]
    assert tries == [False, False, True]
    now = 10 + CircuitBreaker.FIRST
    for _ in range(12):
        breaker.failed(now, late)
        now += CircuitBreaker.LONGEST
        assert breaker.may_try(now), "the pause has a limit"
    assert not breaker.may_try(now + CircuitBreaker.LONGEST - 1), "and has grown up to it"
    breaker.worked()
    breaker.failed(now)
    assert breaker.closed, "an answer starts the count again"


def test_after_a_pause_one_alone_tries() -> None:
    breaker = answered()
    for _ in range(CircuitBreaker.FAILURES):
        breaker.failed(0)
    assert [breaker.may_try(now) for now in (1, 1, 1.1)] == [True, False, False]
    assert breaker.may_try(1 + CircuitBreaker.FIRST), "who was to try may have ended meanwhile"
    breaker.worked()
    assert breaker.closed


def test_calls_that_fail_together_count_as_one() -> None:
    breaker = answered()
    for _ in range(64):
        breaker.failed(0)
    assert breaker.may_try(CircuitBreaker.FIRST)


def test_one_tries_an_engine_that_is_new() -> None:
    breaker = CircuitBreaker()
    assert (breaker.closed, breaker.new) == (False, True)
    assert [breaker.may_try(10) for _ in range(3)] == [True, False, False]
    assert breaker.may_try(10 + CircuitBreaker.FIRST), "the one that was to try may have ended meanwhile"
    breaker.worked()
    assert (breaker.closed, breaker.new) == (True, False)


@pytest.mark.parametrize(("late", "pause"), [(False, CircuitBreaker.FIRST), (True, CircuitBreaker.LONGEST)])
def test_an_engine_that_is_new_has_time_to_warm_up(late: bool, pause: float) -> None:
    breaker = CircuitBreaker()
    assert breaker.may_try(10)
    breaker.failed(10, late)
    assert (breaker.closed, breaker.new) == (False, False)
    assert [breaker.may_try(10 + pause - 0.1), breaker.may_try(10 + pause)] == [False, True]


def test_a_late_answer_shows_that_an_engine_has_warmed_up_and_never_again() -> None:
    breaker = CircuitBreaker()
    breaker.failed(10, late=True)
    breaker.worked(late=True)
    assert breaker.closed
    breaker.failed(20, late=True)
    breaker.worked(late=True)
    assert not breaker.closed, "it is too slow"
