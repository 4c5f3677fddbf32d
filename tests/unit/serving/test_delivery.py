"""Deliveries on their thread: what waits for what."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Event, Thread

import pytest

from tandem_serving.delivery import Delivery, Send

SECONDS = 10  # longer than a busy machine holds a thread up


@pytest.fixture
def delivery() -> Iterator[Delivery]:
    made = Delivery(threads=1)
    yield made
    made.close()


def test_a_wave_is_made_before_any_of_it_is_sent(delivery: Delivery) -> None:
    events: SimpleQueue[str] = SimpleQueue()

    def make(name: str) -> Send:
        events.put(f"make {name}")
        return lambda: events.put(f"send {name}")

    delivery.put_wave([("a", lambda: make("a")), ("b", lambda: make("b"))])
    assert [events.get(timeout=SECONDS) for _ in range(4)] == ["make a", "make b", "send a", "send b"]


def test_only_what_is_urgent_is_delivered_in_a_hurry(delivery: Delivery) -> None:
    sent: SimpleQueue[str] = SimpleQueue()
    delivery.hurry(True)
    try:
        delivery.put_wave([("new", lambda: lambda: sent.put("first token"))], urgent=True)
        assert sent.get(timeout=SECONDS) == "first token"
        delivery.put_wave([("old", lambda: lambda: sent.put("more"))])
        with pytest.raises(Empty):
            sent.get(timeout=0.05)
    finally:
        delivery.hurry(False)
    assert sent.get(timeout=SECONDS) == "more"


def test_nothing_makes_way_where_sequences_make_their_own_calls() -> None:
    delivery, sent = Delivery(threads=1, waves=False), SimpleQueue[str]()
    delivery.hurry(True)  # one of them always is
    delivery.put("a", lambda: sent.put("text"))
    assert sent.get(timeout=SECONDS) == "text"
    delivery.close()


@pytest.mark.parametrize("waves", [True, False])
def test_calls_do_not_run_ahead_of_deliveries(waves: bool) -> None:
    delivery, go, ahead = Delivery(threads=1, waves=waves, most_behind=2), Event(), Event()

    def send() -> None:
        go.wait(SECONDS)

    def caller() -> None:
        delivery.hurry(True)
        delivery.keep_up()  # three steps are in line: one too many
        ahead.set()
        delivery.hurry(False)

    for _ in range(3):
        delivery.put("a", send)
    thread = Thread(target=caller)
    thread.start()
    assert not ahead.wait(0.05)
    go.set()
    assert ahead.wait(SECONDS)
    thread.join()
    delivery.close()
