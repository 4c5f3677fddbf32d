from tandem_serving.breaker import Breaker


def test_drafts_pause_after_failures_in_a_row_longer_each_time_and_come_back() -> None:
    breaker = Breaker()
    for _ in range(Breaker.FAILURES - 1):
        breaker.failed(10)
    assert breaker.closed(10), "one bad request is not an engine that is down"
    breaker.failed(10)
    assert [breaker.closed(10 + s) for s in (0, Breaker.FIRST / 2, Breaker.FIRST)] == [False, False, True]
    now = 10 + Breaker.FIRST
    for _ in range(12):
        breaker.failed(now)
        now += Breaker.LONGEST
        assert breaker.closed(now), "the pause has a limit"
    assert not breaker.closed(now - 1), "and has grown up to it"
    breaker.worked()
    breaker.failed(now)
    assert breaker.closed(now), "an answer starts the count again"
