"""A responder that keeps everything, and holds its caller to what Triton's asks for."""

import threading
from dataclasses import dataclass, field
from typing import Generic, Self

from tandem_serving.errors import ServingError
from tandem_serving.requests.active import P


@dataclass
class Answer(Generic[P]):
    """What a client was sent. `gone`: the client has left; `broken`: sending fails; `lost`: an error too.
    `asked`: how often whether it has left."""

    chunks: list[P] = field(default_factory=list)
    error: ServingError | None = None
    gone: bool = False
    broken: bool = False
    lost: bool = False
    asked: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def send(self, chunk: P, last: bool) -> None:
        """A chunk."""
        assert not self.over.is_set(), "nothing may follow the end"
        if self.broken:
            raise OSError("the server is gone")
        self.chunks.append(chunk)
        if last:
            self.over.set()

    def fail(self, error: ServingError) -> None:
        """The end, with an error."""
        assert not self.over.is_set(), "nothing may follow the end"
        self.error = error
        self.over.set()
        if self.lost:
            raise OSError("the server is gone")

    def cancelled(self) -> bool:
        """Whether the client has left."""
        assert not self.over.is_set(), "Triton has freed the request: asking crashes the server"
        self.asked += 1
        return self.gone

    def wait(self) -> Self:
        """Until the end."""
        assert self.over.wait(60), "no end after 60 s"
        return self
