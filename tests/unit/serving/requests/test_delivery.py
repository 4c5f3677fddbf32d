"""Deliveries on their thread: what waits for what."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Event, Thread

import pytest

from tandem_serving.requests.delivery import Delivery

SECONDS = 60  # longer than a busy machine holds a thread up


Sent = SimpleQueue[str]


@pytest.fixture
def sent() -> Sent:
    return SimpleQueue()


@pytest.fixture
def delivery(sent: Sent) -> Iterator[Delivery[str]]:
    made = Delivery(sent.put)
    yield made
    made.close()


def test_what_a_batch_brings_is_made_then_sent(delivery: Delivery[str], sent: Sent) -> None:
    sent_before: list[bool] = []

    def last() -> list[str]:
        sent_before.append(not sent.empty())
        return ["b1"]

    delivery.put_batch([("a", lambda: ["a1", "a2"]), ("none", list), ("b", last)])
    delivery.put_batch([("a", lambda: ["a3"])])
    assert [sent.get(timeout=SECONDS) for _ in range(4)] == ["a1", "a2", "b1", "a3"]
    assert sent_before == [False]


def test_what_is_not_taken_holds_up_its_own_thread_s_sequences_alone() -> None:
    sent, taken = Sent(), Event()
    sequences = [object() for _ in range(32)]

    def send(text: str) -> None:
        if text == "held":
            taken.wait(SECONDS)
        sent.put(text)

    delivery = Delivery(send, threads=2)
    delivery.put_batch([(sequences[0], lambda: ["held"])])
    delivery.put_batch([(each, lambda: ["flows"]) for each in sequences])
    assert sent.get(timeout=SECONDS / 2) == "flows"
    taken.set()
    delivery.close()
    assert sorted(sent.get_nowait() for _ in range(len(sequences))) == ["flows"] * (len(sequences) - 1) + ["held"]


def test_what_cannot_be_made_leaves_the_others(delivery: Delivery[str], sent: Sent) -> None:
    delivery.put_batch([("a", lambda: [str(1 / 0)]), ("b", lambda: ["b1"])])
    assert sent.get(timeout=SECONDS) == "b1"


def test_only_first_steps_are_delivered_in_a_hurry(delivery: Delivery[str], sent: Sent) -> None:
    delivery.hurry(True)
    try:
        delivery.put_batch([("new", lambda: ["first token"])], first=True)
        assert sent.get(timeout=SECONDS) == "first token"
        delivery.put_batch([("old", lambda: ["more"])])
        with pytest.raises(Empty):
            sent.get(timeout=0.05)
    finally:
        delivery.hurry(False)
    assert sent.get(timeout=SECONDS) == "more"


def test_a_first_step_goes_before_what_waits(delivery: Delivery[str], sent: Sent) -> None:
    begun, go = Event(), Event()

    def held() -> list[str]:
        begun.set()
        go.wait(SECONDS)
        return ["old 1", "old 2"]

    delivery.put_batch([("old", held)])
    assert begun.wait(SECONDS)
    delivery.put_batch([("older", lambda: ["old 3"])])
    delivery.put_batch([("new", lambda: ["first"])], first=True)
    delivery.put_batch([("new", lambda: ["second"])])
    go.set()
    assert [sent.get(timeout=SECONDS) for _ in range(5)] == ["old 1", "first", "old 2", "old 3", "second"]


def test_nothing_makes_way_where_sequences_make_their_own_calls() -> None:
    delivery, sent = Delivery[str](batched=False), SimpleQueue[str]()
    delivery.hurry(True)  # one of them always is
    delivery.put("a", lambda: sent.put("text"))
    assert sent.get(timeout=SECONDS) == "text"
    delivery.close()


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
