"""How much of the replicas' KV caches sequences hold. Pure.

Where all blocks of an engine's cache are held it lets requests wait, whatever places it has left. What is free is no
measure of that: in mode BLS a round is a request of its own, and between rounds a sequence's blocks count as free,
kept for reuse. So what a request holds is counted for every sequence that has a place.
"""

from dataclasses import dataclass
from statistics import fmean

from tandem.metrics.capacity.demand import unseen
from tandem.metrics.telemetry.figures import Figures

# Requests that the engines must have had on average, all together: fewer say too little of what one holds.
LEAST_REQUESTS = 0.1


@dataclass(frozen=True)
class KvCacheDemand:
    """KV caches of a service's target engines, in blocks."""

    held: float
    """By the sequences of all replicas."""
    blocks: float
    """Of a replica."""


def measure(figures: Figures, newcomers: int) -> KvCacheDemand | None:
    """What a window shows; None where no engine reports it, or those that do had hardly a request.

    `newcomers`: pods that became Ready within it.
    """
    reported = [
        (pod.kv_blocks, pod.kv_blocks_used, pod.engine_requests)
        for pod in figures.pods
        if pod.kv_blocks and pod.kv_blocks_used is not None and pod.engine_requests is not None
    ]
    requests = sum(requests for _, _, requests in reported)
    if requests < LEAST_REQUESTS:
        return None
    each = sum(used for _, used, _ in reported) / requests
    window = max(pod.seconds for pod in figures.pods)
    sequences = unseen(figures, newcomers) * sum((pod.running or 0.0) * pod.seconds for pod in figures.pods) / window
    return KvCacheDemand(sequences * each, fmean(blocks for blocks, _, _ in reported))
