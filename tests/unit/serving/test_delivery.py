"""Deliveries on their thread: what waits for what."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue

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
