"""An engine of the runner whose calls an EngineWatch gets to know of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from tandem_serving.bls.batches import Route, Row
from tandem_serving.bls.call_times import prompts, steps
from tandem_serving.bls.calls import Output, Part
from tandem_serving.bls.runner import BlsEngine, EngineResponses, StreamEngine
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.engine.watch import EngineWatch
from tandem_serving.errors import ServingError


class WatchedEngine:
    """An `BlsEngine` of the runner; `route`: what it is there."""

    def __init__(self, engine: BlsEngine, route: Route, watch: EngineWatch) -> None:
        self._engine = engine
        self._route = route
        self._watch = watch

    def call(self, rows: Sequence[Row[BlsSequence]]) -> EngineResponses:
        """An engine call with these rows; it starts when it is read."""
        return _WatchedResponses(self._engine.call(rows), self._route, rows, self._watch)


class WatchedStreams:
    """A `StreamEngine` of the runner: each of its calls is answered again and again."""

    def __init__(self, engine: StreamEngine, watch: EngineWatch) -> None:
        self._engine = engine
        self._watch = watch
        self._answered: dict[int, Callable[[], None]] = {}

    def call(self, rows: Sequence[Row[BlsSequence]]) -> EngineResponses:
        """An engine call with this row; it starts when it is read."""
        return _WatchedResponses(self._engine.call(rows), "stream", rows, self._watch, self._answered)

    def read(self) -> list[Part]:
        """What came of all such calls. Raises what it raises."""
        parts = self._engine.read()
        for i, part in enumerate(parts):
            # The others' come in the same moment: they would show steps that take no time.
            if (i == 0 or not part.start) and (answered := self._answered.get(part.stream)):
                answered()
        return parts


def watched(engines: Mapping[Route, BlsEngine], watch: EngineWatch) -> dict[Route, BlsEngine]:
    """The runner's engines, each reporting to `watch`."""
    return {
        route: WatchedStreams(engine, watch)
        if isinstance(engine, StreamEngine)
        else WatchedEngine(engine, route, watch)
        for route, engine in engines.items()
    }


class _WatchedResponses:
    def __init__(
        self,
        answers: EngineResponses,
        route: Route,
        rows: Sequence[Row[BlsSequence]],
        watch: EngineWatch,
        parts: dict[int, Callable[[], None]] | None = None,
    ) -> None:
        """`parts` gets what is to be called at each part of a streaming call, by its number."""
        self._parts = {} if parts is None else parts
        self._answers = answers
        self._route = route
        self._rows = rows
        self._watch = watch

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        """The call's answers. Raises what it raises."""
        return self._of_draft() if self._route in ("draft", "round") else self._of_target()

    def stop(self) -> None:
        """Ask the engine to end the call; returns at once."""
        self._answers.stop()

    def _of_target(self) -> Iterator[list[tuple[int, Output]]]:
        with self._watch.call(steps(self._rows) + prompts(self._rows), self._kind()) as answered:
            self._parts[self._rows[0].stream] = answered
            try:
                for outputs in self._answers:
                    answered()
                    yield outputs
            finally:
                del self._parts[self._rows[0].stream]

    def _of_draft(self) -> Iterator[list[tuple[int, Output]]]:
        """Of a round that the server makes the target answered; where one fails, each engine is asked by itself."""
        try:
            for outputs in self._answers:
                if self._route == "round":
                    self._watch.worked()
                yield outputs
        except ServingError:
            if self._route == "draft":
                self._watch.draft_failed()
            raise

    def _kind(self) -> Hashable:
        """What decides which code of the engine runs: what its requests ask for."""
        inputs = self._rows[0].sequence.engine_inputs["target"]
        return frozenset(inputs.tensors), inputs.outputs
