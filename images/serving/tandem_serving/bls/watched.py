"""An engine of the runner whose calls an EngineWatch gets to know of."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from tandem_serving.bls.calls import Call, Output
from tandem_serving.bls.runner import BlsEngine, EngineResponses
from tandem_serving.bls.schedule import Route, Row
from tandem_serving.bls.sequence import BlsSequence
from tandem_serving.engine.health import PROMPT_TOKENS
from tandem_serving.engine.watch import EngineWatch
from tandem_serving.errors import ServingError


class WatchedEngine:
    """An `BlsEngine` of the runner; `lane`: what it is there."""

    def __init__(self, engine: BlsEngine, lane: Route, watch: EngineWatch) -> None:
        self._engine = engine
        self._lane = lane
        self._watch = watch

    def call(self, turns: Sequence[Row[BlsSequence]]) -> EngineResponses:
        """An engine call with a row for each turn; it starts when it is read."""
        return _WatchedResponses(self._engine.call(turns), self._lane, turns, self._watch)


def watched(engines: Mapping[Route, BlsEngine], watch: EngineWatch) -> dict[Route, BlsEngine]:
    """The runner's engines, each reporting to `watch`."""
    return {lane: WatchedEngine(engine, lane, watch) for lane, engine in engines.items()}


class _WatchedResponses:
    def __init__(
        self, answers: EngineResponses, lane: Route, turns: Sequence[Row[BlsSequence]], watch: EngineWatch
    ) -> None:
        self._answers = answers
        self._lane = lane
        self._turns = turns
        self._watch = watch

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        """The call's answers. Raises what it raises."""
        return self._of_draft() if self._lane in ("draft", "round") else self._of_target()

    def stop(self) -> None:
        """Ask the engine to end the call; returns at once."""
        self._answers.stop()

    def _of_target(self) -> Iterator[list[tuple[int, Output]]]:
        with self._watch.call(work(self._turns), self._kind()) as answered:
            for outputs in self._answers:
                answered()
                yield outputs

    def _of_draft(self) -> Iterator[list[tuple[int, Output]]]:
        """Of a round that the server makes the target answered; where one fails, each engine is asked by itself."""
        try:
            for outputs in self._answers:
                if self._lane == "round":
                    self._watch.worked()
                yield outputs
        except ServingError:
            if self._lane == "draft":
                self._watch.draft_failed()
            raise

    def _kind(self) -> Hashable:
        """What decides which code of the engine runs: what its requests ask for."""
        binding = self._turns[0].sequence.bindings["target"]
        return frozenset(binding.tensors), binding.outputs


def work(turns: Sequence[Row[BlsSequence]]) -> float:
    """A call's work in steps of the engine: its prompts', and those of its longest row."""
    steps = max(1 if turn.call.draft_ids else turn.call.output_len for turn in turns)
    return steps + sum(_prompt(turn.call) for turn in turns) / PROMPT_TOKENS


def _prompt(call: Call) -> int:
    return len(call.ids) if call.first else 0
