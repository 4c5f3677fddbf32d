"""Requests that share an engine's passes."""

from collections.abc import Sequence
from queue import SimpleQueue

from reference_engine.engine import Engine, EngineStopped
from reference_engine.request import Finish, Output, Request


def run(engine: Engine, requests: Sequence[Request]) -> list[Output]:
    """Submit requests together and wait for all: their outputs, in the requests' order.

    No request may be streaming: each has one output. Raises RequestError and EngineStopped.
    """
    queues: list[SimpleQueue[Output]] = [SimpleQueue() for _ in requests]
    engine.submit_all(zip(requests, (queue.put for queue in queues), strict=True))
    outputs = [queue.get() for queue in queues]
    for output in outputs:
        if output.finish == Finish.ERROR:
            raise EngineStopped(output.error)
    return outputs
