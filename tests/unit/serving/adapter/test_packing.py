"""Waves of chunks: what is packed, how, and how requests' pieces become waves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pytest

from tandem_serving.adapter.packing import fits, pack
from tandem_serving.bls.chunks import BlsChunk, BlsSummary
from tandem_serving.errors import CancelledError, ServingError
from tandem_serving.requests.active import ActiveRequest, AddressedChunk, UnpackedError, send

SCORES = np.zeros(1, np.float32)
ODD: dict[str, dict[str, Any]] = {
    "log probs": {"log_probs": SCORES},
    "logits": {"logits": SCORES},
    "their sum": {"cum_log_prob": 0.0},
    "performance metrics": {"perf_metrics": {"arrival_time_ns": 1}},
}


def test_numbers_tokens_and_texts_follow_each_other() -> None:
    chunks = [
        (7, BlsChunk(0, "äb", [5, 6, 7], accepted=2, draft_length=1), False),
        (1 << 40, BlsChunk(3, "", [8], finish_reason="stop", summary=BlsSummary(9, 4, 11, 5)), True),
        (7, BlsChunk(1, "c", []), False),
    ]
    packed = pack(chunks)
    assert packed.numbers.tolist() == [
        *(7, 0, 0, 2, 1, 0, 0, 0, 0, 0, 3, 3, 5, 6, 7),
        *(1 << 40, 1, 3, 0, 0, 3, 4, 9, 11, 5, 0, 1, 8),
        *(7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0),
    ]
    assert packed.numbers.dtype == np.int64
    assert packed.text.tobytes().decode() == "äbc"
    assert packed.text.dtype == np.uint8


@pytest.mark.parametrize("more", ODD.values(), ids=ODD)
def test_what_there_is_no_room_for(more: dict[str, Any]) -> None:
    assert not fits(BlsChunk(0, "a", [1], **more))
    assert fits(BlsChunk(0, "a", [1], finish_reason="length", summary=BlsSummary(1, 1, 1, 1)))


Sent = list[tuple[str, Any]]


@dataclass
class Client:
    """A responder of the front's: what went out by which request, in the order of all, is in `sent`."""

    name: str
    sent: Sent
    gone: bool = False
    broken: bool = False
    errors: list[ServingError] = field(default_factory=list)

    def send(self, chunk: BlsChunk, last: bool) -> None:
        self.sent.append((f"{self.name} alone", chunk.text))

    def batch_sender(self, chunk: BlsChunk) -> Self | None:
        return self if fits(chunk) else None

    def send_batch(self, batch: Sequence[tuple[Self, BlsChunk, bool]]) -> None:
        if self.broken:
            raise OSError("the server is gone")
        if any(chunk.finish_reason == "odd" for _, chunk, _ in batch):
            raise UnpackedError
        self.sent.append((self.name, [(client.name, chunk.text, last) for client, chunk, last in batch]))

    def close(self) -> None:
        self.sent.append((self.name, "closed"))

    def fail(self, error: ServingError) -> None:
        self.errors.append(error)

    def cancelled(self) -> bool:
        return self.gone


class Clients:
    """Requests of some clients, of two prompts each where a name says so."""

    def __init__(self, *names: str) -> None:
        self.sent: Sent = []
        self.clients = {name: Client(name, self.sent) for name in names}
        self.active_requests = {
            name: ActiveRequest[BlsChunk](1 + (name == "two"), "", each, 1e9) for name, each in self.clients.items()
        }

    def send(self, *chunks: tuple[str, BlsChunk]) -> Sent:
        self.sent.clear()
        send([AddressedChunk(self.active_requests[name], chunk) for name, chunk in chunks])
        return self.sent


def chunk(text: str, finish: str = "", **more: Any) -> BlsChunk:
    return BlsChunk(0, text, [1], finish_reason=finish, **more)


def test_pieces_of_many_requests_leave_with_the_first_one() -> None:
    clients = Clients("a", "b")
    assert clients.send(("a", chunk("1")), ("b", chunk("2")), ("a", chunk("3"))) == [
        ("a", [("a", "1", False), ("b", "2", False), ("a", "3", False)])
    ]


def test_a_request_is_closed_after_its_last_prompt_s_last_piece() -> None:
    clients = Clients("two", "b")
    clients.send(("two", chunk("1", "stop")), ("b", chunk("2")))
    assert clients.send(("b", chunk("3")), ("two", chunk("4", "stop"))) == [
        ("b", [("b", "3", False), ("two", "4", True)]),
        ("two", "closed"),
    ]
    assert clients.active_requests["two"].over
    assert clients.send(("two", chunk("5"))) == [], "nothing follows the end"


def test_what_does_not_pack_keeps_its_place() -> None:
    clients = Clients("a", "b")
    odd = chunk("3", log_probs=SCORES)
    assert clients.send(("a", chunk("1")), ("b", chunk("2")), ("a", odd), ("a", chunk("4"))) == [
        ("a", [("a", "1", False), ("b", "2", False)]),
        ("a alone", "3"),
        ("a", [("a", "4", False)]),
    ]


def test_a_request_that_is_over_carries_nothing() -> None:
    clients = Clients("a", "b")
    clients.active_requests["a"].fail(CancelledError("stopped"))
    assert clients.send(("a", chunk("1")), ("b", chunk("2"))) == [("b", [("b", "2", False)])]


def test_the_last_piece_waits_where_the_client_is_gone() -> None:
    clients = Clients("a", "b")
    clients.clients["a"].gone = True
    assert clients.send(("a", chunk("1")), ("b", chunk("2")), ("a", chunk("3", "stop"))) == [
        ("a", [("a", "1", False), ("b", "2", False)])
    ]
    assert not clients.active_requests["a"].over


def test_a_wave_that_cannot_be_sent_is_everybody_s_error(caplog: pytest.LogCaptureFixture) -> None:
    clients = Clients("a", "b", "c")
    clients.clients["a"].broken = True
    assert clients.send(("a", chunk("1")), ("b", chunk("2"))) == []
    assert [len(clients.clients[name].errors) for name in ("a", "b", "c")] == [1, 1, 0]
    assert "a response could not be sent" in caplog.text


def test_a_malformed_chunk_is_its_own_request_s_error_alone() -> None:
    clients, counted = Clients("a", "b", "c"), list[int]()
    chunks = [("a", chunk("1")), ("b", chunk("2", "odd")), ("c", chunk("3", "stop"))]
    send([AddressedChunk(clients.active_requests[name], each) for name, each in chunks], lambda: counted.append(1))
    assert clients.sent == [("a", [("a", "1", False)]), ("c", [("c", "3", True)]), ("c", "closed")]
    assert [len(clients.clients[name].errors) for name in ("a", "b", "c")] == [0, 1, 0]
    assert counted == [1]


@pytest.mark.parametrize("asked", ["batch_sender", "cancelled"])
def test_a_request_about_which_nothing_can_be_found_out_costs_no_other_its_piece(
    asked: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others' pieces were lost, silently: later ones followed."""
    clients, counted = Clients("a", "b"), list[int]()
    setattr(clients.clients["a"], asked, lambda *_: 1 // 0)
    chunks = [("b", chunk("1")), ("a", chunk("2", "stop")), ("b", chunk("3"))]
    send([AddressedChunk(clients.active_requests[name], each) for name, each in chunks], lambda: counted.append(1))
    assert "".join(text for _, batch in clients.sent for _, text, _ in batch) == "13"
    assert [len(clients.clients[name].errors) for name in ("a", "b")] == [1, 0]
    assert counted == [1]
    assert "a response could not be sent" in caplog.text
