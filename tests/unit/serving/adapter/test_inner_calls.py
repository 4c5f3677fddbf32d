"""Calls of other models end with the server: the first that it refuses for that is the last."""

from collections.abc import Iterator
from typing import Any

import pytest

from tandem_serving.adapter import inner_calls
from tandem_serving.adapter.inner_calls import ServerEndsError, ServerState, execute, learn
from tandem_serving.adapter.response_iterators import responses
from tandem_serving.errors import EngineError

REFUSED = "Model tensorrt_llm - Error when running inference: Server not ready"
"""As 24.10 words it."""


class Response:
    def __init__(self, error: str = "") -> None:
        self._error = error

    def has_error(self) -> bool:
        return bool(self._error)

    def error(self) -> "Response":
        return self

    def message(self) -> str:
        return self._error

    def output_tensors(self) -> list[Any]:
        return []


class Call:
    def __init__(self, error: str = "", raises: bool = False) -> None:
        self._error, self._raises = error, raises
        self.made = 0

    def exec(self, decoupled: bool = False) -> Any:
        self.made += 1
        if self._raises:
            raise RuntimeError(self._error)
        return iter([Response(self._error)]) if decoupled else Response(self._error)


def one(call: Call) -> Response:
    response: Response = execute(call)
    learn(response)
    return response


def stream(call: Call) -> None:
    for response in responses(call):
        learn(response)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerState]:
    made = ServerState()
    monkeypatch.setattr(inner_calls, "SERVER", made)
    yield made


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("make", [one, stream])
def test_the_first_call_that_a_server_which_ends_refuses_is_the_last(
    server: ServerState, make: Any, raises: bool
) -> None:
    make(Call())
    with pytest.raises(ServerEndsError, match="shutting down") as caught:
        make(Call(REFUSED, raises))
    assert isinstance(caught.value, EngineError)
    assert caught.value.code == "UNAVAILABLE", "clients send it again"
    for each in (one, stream):
        later = Call()
        with pytest.raises(ServerEndsError):
            each(later)
        assert not later.made, "it would be freed after the memory that it lies in"


def test_before_the_server_was_ready_a_refusal_is_nothing_to_remember(server: ServerState) -> None:
    assert one(Call(REFUSED)).has_error()
    assert not one(Call()).has_error()


@pytest.mark.parametrize("raises", [False, True])
def test_other_errors_are_passed_on(server: ServerState, raises: bool) -> None:
    one(Call())
    if raises:
        with pytest.raises(RuntimeError, match="no blocks"):
            one(Call("no blocks", raises))
    else:
        assert one(Call("no blocks")).has_error()
    assert not one(Call()).has_error()
