"""Host time of the reference engine's scheduler, on a fake of a GPU that answers at once.

`python -m bench.engine_host` (tests and images/reference on PYTHONPATH; neither torch nor a GPU) prints for 1, 16 and
64 streams the microseconds of a round (k tokens drafted, then verified, each a new request with the whole text) and
of each of its requests. On a GPU this time is what a round takes beyond the passes, as far as it stands before the
first pass or behind the last one.
"""

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Sequence

import reference_engine  # sets up OpenBLAS: before numpy

# isort: split
import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.request import Output, Request
from reference_engine.scheduler import Capacity, Scheduler
from reference_engine.torch_backend.layout import Input, Shape

Ids = npt.NDArray[np.int32]
LONGEST, CONTEXT, DRAFT_LEN = 1024, 500, 4
STREAMS = (1, 16, 64)
VOCABULARY = 128_256
ROUNDS = 40


class FakeGPU:
    """A backend that fills its input as `TorchModel` does, and chooses token 7 always."""

    def __init__(self) -> None:
        self._array = np.zeros(1 << 16, np.int32)

    def forward(self, segments: Sequence[Segment]) -> int:
        """The number of rows of logits."""
        shape = Shape.of(segments)
        Input(self._array[: shape.entries], shape, 64).fill(segments)
        return shape.wanted

    def choose(self, logits: int, choices: Sequence[Choice]) -> list[Pick]:
        """Token 7 for each row."""
        return [lambda row: Chosen(7)] * len(choices)

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """Nothing to copy."""


def scheduler(streams: int) -> Scheduler:
    """A scheduler of one such model."""
    return Scheduler(FakeGPU(), Capacity(LONGEST, streams, LONGEST), VOCABULARY)


def step_all(engine: Scheduler, requests: list[Request]) -> list[Output]:
    """The requests' only outputs."""
    outputs: dict[int, Output] = {}
    for index, request in enumerate(requests):
        engine.submit(request, lambda output, index=index: outputs.__setitem__(index, output))  # type: ignore[misc]
    while not engine.idle:
        engine.step()
    return [outputs[index] for index in range(len(requests))]


def round_(target: Scheduler, draft: Scheduler, texts: list[Ids]) -> None:
    """Draft and verify once; the texts grow by a token, so that they fit for many rounds."""
    drafted = step_all(draft, [Request(ids, DRAFT_LEN) for ids in texts])
    wrong = [np.array([*each.tokens[:1], *(5 for _ in each.tokens[1:])], np.int32) for each in drafted]
    verify = [Request(ids, DRAFT_LEN + 1, draft_ids=draft) for ids, draft in zip(texts, wrong, strict=True)]
    for index, output in enumerate(step_all(target, verify)):
        texts[index] = np.concatenate([texts[index], np.array(output.tokens, np.int32)])


def measure(streams: int, rounds: int) -> float:
    """Median seconds of a round."""
    target, draft = scheduler(streams), scheduler(streams)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, VOCABULARY, CONTEXT).astype(np.int32) for _ in range(streams)]
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        round_(target, draft, texts)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_host", description=reference_engine.__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true", help="of 64 streams: where the time goes")
    options = parser.parse_args()
    for streams in STREAMS:
        seconds = measure(streams, options.rounds)
        request = seconds / streams / 2
        sys.stdout.write(f"{streams:3} streams: {seconds * 1e6:8.0f} us a round, {request * 1e6:6.1f} a request\n")
    if options.profile:
        with cProfile.Profile() as profile:
            measure(64, options.rounds)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
