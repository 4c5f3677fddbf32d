"""Waiting for what a server does, by what it tells."""

import time
from collections.abc import Callable
from dataclasses import replace

from bench.bls.client import Load
from bench.bls.measure import Bench, Point
from triton.harness import TritonServer


def metric(server: TritonServer, name: str) -> float:
    """0 before it is counted."""
    lines = [line for line in server.metrics().splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[-1]) if lines else 0.0


def eventually(reached: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait; less long than a call of the stand-in takes that hangs (600 s) or makes 1,500 slow tokens (75 s), and is
    not ended."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def played(bench: Bench, load: Load) -> Point:
    """A load, over a window that is long enough for requests to end in: a busy machine has none in a short one."""
    for times in (1, 10, 60):
        point = bench.run(replace(load, seconds=times * load.seconds))
        if point.result.requests > load.streams:
            return point
    raise AssertionError(f"{point.result.requests} requests ended in {point.result.seconds:.0f} s")


def counted(server: TritonServer, names: list[str], ask: Callable[[], list[float]]) -> None:
    """Wait until the metrics `names` have grown by what `ask` says of the requests that it makes.

    Models report later than they answer, and how much later nothing tells: where a metric grows by more, what came
    before may have been told of only now. It is asked again then, from what the page says by now.
    """
    for left in reversed(range(5)):
        before = [metric(server, name) for name in names]
        expected = [then + said for then, said in zip(before, ask(), strict=True)]

        def told(expected: list[float] = expected) -> bool:
            return all(metric(server, name) >= wanted for name, wanted in zip(names, expected, strict=True))

        eventually(told, f"counted: {dict(zip(names, expected, strict=True))}")
        time.sleep(1)  # whatever was counted too often is told of, too
        now = [metric(server, name) for name in names]
        if now == expected:
            return
        assert left, f"{dict(zip(names, now, strict=True))} instead of {expected}"
