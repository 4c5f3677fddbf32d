"""Requests that share a scheduler's passes."""

from collections.abc import Sequence
from functools import partial

from reference_engine.request import Output, Request
from reference_engine.scheduler import Scheduler


def run(scheduler: Scheduler, requests: Sequence[Request]) -> list[Output]:
    """Step until the requests have ended: their outputs, in the requests' order. Others that are queued share passes.

    No request may be streaming: each has one output. Raises RequestError.
    """
    outputs: dict[int, Output] = {}
    for index, request in enumerate(requests):
        scheduler.submit(request, partial(outputs.__setitem__, index))
    while len(outputs) < len(requests):
        scheduler.step()
    return [outputs[index] for index in range(len(requests))]
