from tandem_serving.bls.circuit_breaker import CircuitBreaker


def test_drafts_pause_after_failures_in_a_row_longer_each_time_and_come_back() -> None:
    breaker = CircuitBreaker()
    for _ in range(CircuitBreaker.FAILURES - 1):
        breaker.failed(10)
    assert breaker.closed(10), "one bad request is not an engine that is down"
    breaker.failed(10)
    assert [breaker.closed(10 + s) for s in (0, CircuitBreaker.FIRST / 2, CircuitBreaker.FIRST)] == [
        False,
        False,
        True,
    ]
    now = 10 + CircuitBreaker.FIRST
    for _ in range(12):
        breaker.failed(now)
        now += CircuitBreaker.LONGEST
        assert breaker.closed(now), "the pause has a limit"
    assert not breaker.closed(now + CircuitBreaker.LONGEST - 1), "and has grown up to it"
    breaker.worked()
    breaker.failed(now)
    assert breaker.closed(now), "an answer starts the count again"


def test_after_a_pause_one_alone_tries() -> None:
    breaker = CircuitBreaker()
    for _ in range(CircuitBreaker.FAILURES):
        breaker.failed(0)
    assert [breaker.closed(now) for now in (1, 1, 1.1)] == [True, False, False]
    assert breaker.closed(1 + CircuitBreaker.FIRST), "who was to try may have ended meanwhile"
    breaker.worked()
    assert [breaker.closed(2), breaker.closed(2)] == [True, True]


def test_calls_that_fail_together_count_as_one() -> None:
    breaker = CircuitBreaker()
    for _ in range(64):
        breaker.failed(0)
    assert breaker.closed(CircuitBreaker.FIRST)
