"""Requests to the reference engine."""

from typing import Any

import numpy as np
import numpy.typing as npt

from reference_engine.request import Output, Request
from reference_engine.sampling import SamplingParams
from reference_engine.scheduler import Scheduler

Ids = npt.NDArray[np.int32]


def run(scheduler: Scheduler, *requests: Request) -> list[list[Output]]:
    """All outputs of each request, submitted together."""
    outputs: list[list[Output]] = [[] for _ in requests]
    for request, sink in zip(requests, outputs, strict=True):
        scheduler.submit(request, sink.append)
    while not scheduler.idle:
        scheduler.step()
    return outputs


def generate(scheduler: Scheduler, prompt: Ids, count: int, sampling: SamplingParams | None = None) -> list[int]:
    """Tokens of one request alone."""
    [[output]] = run(scheduler, Request(prompt, count, sampling=sampling or SamplingParams()))
    return output.tokens


Array = npt.NDArray[Any]


def inputs(**more: Any) -> dict[str, Array]:
    """A valid request of one row, with these tensors beside or instead."""
    required = {"input_ids": [[5, 6, 7]], "input_lengths": [[3]], "request_output_len": [[4]]}
    return {name: np.array(value) for name, value in {**required, **more}.items() if value is not None}
