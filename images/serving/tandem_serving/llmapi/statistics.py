"""The engine's state, and the gauges that are made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tandem_serving.metrics import Family, Labels

MODEL = (("model", "tensorrt_llm"), ("version", "1"))
"""Triton's name of the model that clients call. The operator tells a target's numbers from a draft's by it."""


@dataclass(frozen=True)
class EngineFamilies:
    """Where an engine's state is shown: its requests, and the blocks of its KV cache."""

    requests: Family
    kv_cache: Family


def families(prefix: str, engine: str) -> EngineFamilies:
    """Families by their prefix; the operator reads those whose prefix it knows (its metrics.telemetry.families)."""
    return EngineFamilies(
        Family(f"{prefix}_request_metrics", "gauge", f"{engine} request metrics"),
        Family(f"{prefix}_kv_cache_block_metrics", "gauge", f"{engine} KV cache block metrics"),
    )


FAMILIES = families("tandem_engine", "Engine")
"""Of engines that have no names of their own."""


@dataclass(frozen=True)
class Speculation:
    """What an engine counted: rounds, tokens drafted, and tokens accepted by their position in the draft."""

    rounds: int
    drafted: int
    accepted: tuple[int, ...]


@dataclass(frozen=True)
class EngineState:
    """Requests in the engine, and blocks of its KV cache: all of them, and those that requests hold.

    `waiting`: more requests, which the engine cannot run yet. Since the state before, of engines that count it:
    `preemptions`, requests that lost their blocks to others and begin again; `speculation`.
    """

    requests: int
    blocks: int
    used: int
    waiting: int = 0
    preemptions: int = 0
    speculation: Speculation | None = None

    def gauges(self, shown: EngineFamilies) -> dict[tuple[Family, Labels], float]:
        """Values by family and labels."""
        blocks = {"max": self.blocks, "free": self.blocks - self.used, "used": self.used}
        return {
            (shown.requests, (("request_type", "active"), *MODEL)): self.requests,
            **{(shown.kv_cache, (("kv_cache_block_type", kind), *MODEL)): value for kind, value in blocks.items()},
        }
