"""Waiting for what a server does, by what it tells."""

import time
from collections.abc import Callable

from triton.harness import TritonServer


def metric(server: TritonServer, name: str) -> float:
    """0 before it is counted."""
    lines = [line for line in server.metrics().splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[-1]) if lines else 0.0


def eventually(reached: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Wait; less long than a call of the stand-in takes that hangs, or is `LONG`, and is not ended."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def settled(server: TritonServer, names: list[str]) -> list[float]:
    """Metrics that earlier requests no longer change: they are reported every half second, or later."""
    values: list[list[float]] = [[], []]

    def same() -> bool:
        time.sleep(1.5)
        values.append([metric(server, name) for name in names])
        return values[-1] == values[-2] == values[-3]

    eventually(same, "metrics settle")
    return values[-1]
