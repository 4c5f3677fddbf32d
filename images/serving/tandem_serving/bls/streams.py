"""Streaming calls in flight, by the numbers that their parts come with. Not thread-safe."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tandem_serving.bls.batches import Batch
from tandem_serving.bls.calls import Part
from tandem_serving.bls.in_flight import InFlightBatch
from tandem_serving.bls.sequence import BlsSequence

_numbers = itertools.count(1)  # a part of a call that was given up is not taken for one of a later call


def number() -> int:
    """Names a streaming call."""
    return next(_numbers)


class Streams:
    """Those whose parts are wanted."""

    def __init__(self) -> None:
        self._by_number: dict[int, InFlightBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._by_number)

    def begin(self, in_flight: InFlightBatch) -> None:
        """A call began, which may be a stream."""
        if in_flight.batch.via == "stream":
            self._by_number[_number_of(in_flight.batch)] = in_flight

    def end(self, in_flight: InFlightBatch) -> None:
        """It is over, or given up."""
        self._by_number.pop(_number_of(in_flight.batch), None)

    def of(self, sequence: BlsSequence) -> list[InFlightBatch]:
        """A sequence's stream, if it has one."""
        return [each for each in self._by_number.values() if each.batch.rows[0].sequence is sequence]

    def wanted(self, parts: Iterable[Part]) -> Iterator[tuple[InFlightBatch, BlsSequence, Part]]:
        """The parts that somebody waits for."""
        for part in parts:
            in_flight = self._by_number.get(part.stream)
            if in_flight and in_flight.left and (sequence := in_flight.left[0].sequence).alive:
                yield in_flight, sequence, part


def _number_of(batch: Batch[BlsSequence]) -> int:
    return batch.rows[0].stream
