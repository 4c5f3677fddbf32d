"""What the reference engine's scheduler adds to the passes of a GPU, measured on a fake of one.

`python -m bench.engine_host` (tests and images/reference on PYTHONPATH; neither torch nor a GPU) prints for 1, 16 and
64 streams how long a round takes beyond its passes, and that by request. A round: k tokens are drafted, then
verified, each a new request with the whole text. The fake's passes take as long as an H100's in the shapes of 8B and
1B. Time is this thread's CPU time and the waits for the fake, so that what else the machine does does not count.
"""

import argparse
import cProfile
import functools
import pstats
import statistics
import sys
import time
from collections.abc import Sequence

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.request import Request
from reference_engine.scheduler import Capacity, Scheduler
from reference_engine.torch_backend.layout import Input, Shape
from reference_llm.llmapi import batch

Ids = npt.NDArray[np.int32]
LONGEST, CONTEXT, DRAFT_LEN = 1024, 500, 4
MS = {1: (1.27, 6.04), 16: (1.34, 7.25), 64: (1.69, 11.1)}  # by streams: a draft's step, a verification
VOCABULARY = 128_256
ROUNDS = 40


class Clock:
    """Seconds of CPU time, and of waits, which are skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    @property
    def now(self) -> float:
        """Seconds since some moment."""
        return time.thread_time() + self._skipped

    def wait(self, until: float) -> None:
        """Skip to a moment, if it is to come."""
        self._skipped += max(0.0, until - self.now)


class FakeGPU:
    """A backend whose passes take so many seconds, one after the other, and yield token 7 always.

    It fills its input as `TorchModel` does, and takes tokens of the last pass by itself.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._seconds = seconds
        self._free_at = 0.0
        self._array = np.zeros(1 << 16, np.int32)

    def forward(self, segments: Sequence[Segment]) -> float:
        """When the pass will be over."""
        shape = Shape.of(segments)
        Input(self._array[: shape.entries], shape, 64).fill(segments)
        self._free_at = max(self._free_at, self._clock.now) + self._seconds
        return self._free_at

    def choose(self, logits: float, choices: Sequence[Choice]) -> list[Pick]:
        """Token 7 for each row, once the pass is over."""
        wait = functools.cache(lambda: self._clock.wait(logits))

        def pick(row: int) -> Chosen:
            wait()
            return Chosen(7)

        return [pick] * len(choices)

    def feeds(self, choices: Sequence[Choice]) -> bool:
        """Always."""
        return True

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """Nothing to copy."""


def scheduler(streams: int, seconds: float, clock: Clock) -> Scheduler:
    """A scheduler of one such model."""
    return Scheduler(FakeGPU(seconds, clock), Capacity(LONGEST, streams, LONGEST), VOCABULARY)


def round_(target: Scheduler, draft: Scheduler, texts: list[Ids]) -> None:
    """Draft and verify once; the texts grow by a token, so that they fit for many rounds."""
    drafted = batch.run(draft, [Request(ids, DRAFT_LEN) for ids in texts])
    wrong = [np.array([*each.tokens[:1], *(5 for _ in each.tokens[1:])], np.int32) for each in drafted]
    verify = [Request(ids, DRAFT_LEN + 1, draft_ids=draft) for ids, draft in zip(texts, wrong, strict=True)]
    for index, output in enumerate(batch.run(target, verify)):
        texts[index] = np.concatenate([texts[index], np.array(output.tokens, np.int32)])


def measure(streams: int, rounds: int) -> float:
    """Median seconds of a round beyond its passes."""
    step, verification = (ms / 1e3 for ms in MS[streams])
    clock = Clock()
    target, draft = scheduler(streams, verification, clock), scheduler(streams, step, clock)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, VOCABULARY, CONTEXT).astype(np.int32) for _ in range(streams)]
    times = []
    for _ in range(rounds):
        started = clock.now
        round_(target, draft, texts)
        times.append(clock.now - started)
    return statistics.median(times[1:]) - verification - DRAFT_LEN * step


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_host", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true", help="of 64 streams: where the time goes")
    options = parser.parse_args()
    for streams in MS:
        seconds = measure(streams, options.rounds)
        us = seconds * 1e6
        sys.stdout.write(
            f"{streams:3} streams: {us:6.0f} us a round beyond its passes, {us / streams / 2:4.0f} a request\n"
        )
    if options.profile:
        with cProfile.Profile() as profile:
            measure(64, options.rounds)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
