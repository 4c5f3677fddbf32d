"""Deliveries on their thread: what waits for what."""

from collections.abc import Iterator
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

import pytest

from tandem_serving.requests.delivery import Delivery

SECONDS = 10  # longer than a busy machine holds a thread up


Sent = SimpleQueue[list[str]]


@pytest.fixture
def sent() -> Sent:
    return SimpleQueue()


@pytest.fixture
def delivery(sent: Sent) -> Iterator[Delivery[str]]:
    made = Delivery(sent.put)
    yield made
    made.close()


def test_what_a_wave_brings_is_sent_together(delivery: Delivery[str], sent: Sent) -> None:
    delivery.put_batch([("a", lambda: ["a1", "a2"]), ("none", list), ("b", lambda: ["b1"])])
    delivery.put_batch([("a", lambda: ["a3"])])
    assert [sent.get(timeout=SECONDS) for _ in range(2)] == [["a1", "a2", "b1"], ["a3"]]


def test_what_cannot_be_made_leaves_the_others(delivery: Delivery[str], sent: Sent) -> None:
    delivery.put_batch([("a", lambda: [str(1 / 0)]), ("b", lambda: ["b1"])])
    assert sent.get(timeout=SECONDS) == ["b1"]


def test_only_what_is_urgent_is_delivered_in_a_hurry(delivery: Delivery[str], sent: Sent) -> None:
    delivery.hurry(True)
    try:
        delivery.put_batch([("new", lambda: ["first token"])], urgent=True)
        assert sent.get(timeout=SECONDS) == ["first token"]
        delivery.put_batch([("old", lambda: ["more"])])
        with pytest.raises(Empty):
            sent.get(timeout=0.05)
    finally:
        delivery.hurry(False)
    assert sent.get(timeout=SECONDS) == ["more"]


def test_nothing_makes_way_where_sequences_make_their_own_calls() -> None:
    delivery, sent = Delivery[str](batched=False), SimpleQueue[str]()
    delivery.hurry(True)  # one of them always is
    delivery.put("a", lambda: sent.put("text"))
    assert sent.get(timeout=SECONDS) == "text"
    delivery.close()


def test_steps_of_sequences_with_calls_of_their_own_go_together_when_they_are_behind() -> None:
    begun, go, sent = Event(), Event(), Sent()
    delivery = Delivery(sent.put, batched=False)

    def held() -> list[str]:
        begun.set()
        go.wait(SECONDS)
        return ["a"]

    delivery.put_batch([("a", held)])
    assert begun.wait(SECONDS)
    for name in "bcd":
        delivery.put_batch([(name, partial(list, name))])
    go.set()
    delivery.close()
    assert [sent.get(timeout=SECONDS) for _ in range(2)] == [["a"], ["b", "c", "d"]]


@pytest.mark.parametrize("batched", [True, False])
def test_calls_do_not_run_ahead_of_deliveries(batched: bool) -> None:
    delivery, go, ahead = Delivery[str](batched=batched, most_behind=2), Event(), Event()

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
