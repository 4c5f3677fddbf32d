"""How requests end where their clients have left, cannot be asked about, or do not take what they are sent."""

from threading import Event, Thread

import pytest

from support.serving.answer import Answer
from tandem_serving.bls.chunks import BlsChunk
from tandem_serving.errors import FAILED, CancelledError, EngineError
from tandem_serving.requests.active import (
    ALWAYS_ASKED,
    LINGER_SECONDS,
    TURNS,
    ActiveRequest,
    ActiveRequests,
    AddressedChunk,
    send,
)

CHUNK, LAST = BlsChunk(0, "a", [1]), BlsChunk(0, "b", [2], finish_reason="length")


class Stuck(Answer[BlsChunk]):
    """A client whose response Triton does not take until `taken`."""

    def __init__(self) -> None:
        super().__init__()
        self.sending, self.taken = Event(), Event()

    def send(self, chunk: BlsChunk, last: bool) -> None:
        self.sending.set()
        assert self.taken.wait(60)
        super().send(chunk, last)


class Unknown(Answer[BlsChunk]):
    """A client of which it cannot be known whether it is gone."""

    def cancelled(self) -> bool:
        raise OSError("the server is gone")


def watched(answer: Answer[BlsChunk]) -> tuple[ActiveRequests[BlsChunk], ActiveRequest[BlsChunk]]:
    requests = ActiveRequests[BlsChunk](timeout=1e9)
    request = requests.make(1, "", answer)
    requests.add(request)
    return requests, request


def test_an_error_lingers_too_where_the_client_is_gone() -> None:
    """With a response still being written, it would crash Triton's gRPC side."""
    answer = Answer[BlsChunk]()
    requests, request = watched(answer)
    request.send(CHUNK)
    answer.gone = True
    request.fail(EngineError(FAILED))
    assert request.over, "its engine calls can be stopped at once"
    requests.watch(now=100.0)
    requests.watch(now=100.0 + 0.9 * LINGER_SECONDS)
    assert answer.error is None
    requests.watch(now=100.0 + LINGER_SECONDS)
    assert isinstance(answer.error, CancelledError)


def test_an_error_that_is_the_only_response_goes_at_once() -> None:
    """None is being written; and who is refused is watched by nobody."""
    answer = Answer[BlsChunk](gone=True)
    request = ActiveRequest(1, "", answer, deadline=0)
    request.fail(EngineError(FAILED))
    assert answer.error is not None


@pytest.mark.parametrize("chunk", [CHUNK, LAST], ids=["within", "at the end"])
def test_a_response_that_is_not_taken_holds_up_no_look_at_clients(chunk: BlsChunk) -> None:
    stuck, other = Stuck(), Answer[BlsChunk](gone=True)
    requests, request = watched(stuck)
    requests.add(requests.make(1, "", other))
    sender = Thread(target=request.send, args=(chunk,))
    sender.start()
    assert stuck.sending.wait(60)
    times = (100.0, 100.0, 100.0 + LINGER_SECONDS)
    looks = Thread(target=lambda: [requests.watch(now) for now in times], daemon=True)
    looks.start()
    looks.join(60)
    assert not looks.is_alive()
    assert isinstance(other.error, CancelledError)
    stuck.taken.set()
    sender.join()
    assert stuck.chunks == [chunk]
    assert request.over is bool(chunk.finish_reason)


def test_of_very_many_those_that_came_last_are_asked_about_in_turn() -> None:
    """A thousand questions ten times a second would cost half a core."""
    first, last = Answer[BlsChunk](gone=True), Answer[BlsChunk](gone=True)
    requests = ActiveRequests[BlsChunk](timeout=1e9)
    answers = [first, *(Answer[BlsChunk]() for _ in range(10 * ALWAYS_ASKED)), last]
    made = [requests.make(1, "", answer) for answer in answers]
    for request in made:
        requests.add(request)
    looks = [requests.watch(now=100.0) for _ in range(TURNS)]
    assert [request.over for request in made] == [True, *[False] * (10 * ALWAYS_ASKED), True]
    assert looks[0], "the first one at once"
    assert sum(looks) <= 2
    assert sum(answer.asked for answer in answers) < TURNS * ALWAYS_ASKED + 10 * ALWAYS_ASKED + TURNS


def test_of_whom_nothing_can_be_known_gets_the_error() -> None:
    answer, counted = Unknown(), list[int]()
    request = ActiveRequest(1, "", answer, deadline=0)
    request.send(CHUNK)
    send(AddressedChunk(request, LAST), lambda: counted.append(1))
    assert counted == [1]
    assert str(answer.error) == FAILED
