"""One case on the running server: the load's figures, and what the server and the engines counted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bls.stub import Meter
from bench.gpu.served import load
from bench.gpu.served.load import Window
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.repository import ROUNDS
from bench.gpu.served.ways import Case
from triton.harness import TritonServer

_PREFIX = "tandem_spec_decode_num_"
_ROUNDS = f'model="{ROUNDS}"'


@dataclass(frozen=True)
class Counters:
    """What counts up: seconds that calls were in each engine, and calls; seconds of rounds made in the server;
    drafts, and how many of their tokens were accepted."""

    busy: dict[str, float]
    calls: dict[str, int]
    round_seconds: float
    drafts: float
    accepted: float
    per_position: list[float]


class Bench:
    """A running server, its engines' meters, if they have any, and the load's `program`."""

    def __init__(self, server: TritonServer, meters: Mapping[str, Meter], program: Path) -> None:
        self.server = server
        self._meters = meters
        self._program = program

    def run(self, case: Case, prompts: Sequence[Prompt], window: Window) -> dict[str, Any]:
        """A row of the table. Raises LoadError."""
        samples: list[Counters] = []
        sent = load.messages(case, prompts, window)
        figures = load.play(self._program, self.server.grpc_url, window, sent, lambda: samples.append(self._read()))
        first, last = samples
        return {
            "case": case.name,
            "streams": window.streams,
            **figures,
            **speculation(first, last),
            "round": rounds(first, last, window.seconds),
        }

    def _read(self) -> Counters:
        page = self.server.metrics()
        meters = {role: meter.read() for role, meter in self._meters.items()}
        positions = [_counter(page, f'{_PREFIX}accepted_tokens_per_pos_total{{position="{i}"}}') for i in range(16)]
        return Counters(
            busy={role: meter[0] for role, meter in meters.items()},
            calls={role: meter[1] for role, meter in meters.items()},
            round_seconds=_counter(page, f'nv_inference_request_duration_us{{{_ROUNDS},version="1"}}') * 1e-6,
            drafts=_counter(page, f"{_PREFIX}drafts_total"),
            accepted=_counter(page, f"{_PREFIX}accepted_tokens_total"),
            per_position=positions,
        )


def _counter(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def speculation(first: Counters, last: Counters) -> dict[str, Any]:
    """Tokens a verification, and how often each position of a draft was accepted; nothing without drafts."""
    drafts = last.drafts - first.drafts
    if not drafts:
        return {"accepted_length": None, "acceptance": []}
    accepted = [b - a for a, b in zip(first.per_position, last.per_position, strict=True)]
    return {
        "accepted_length": 1 + (last.accepted - first.accepted) / drafts,
        "acceptance": [each / drafts for each in accepted if each],
    }


def rounds(first: Counters, last: Counters, seconds: float) -> dict[str, float] | None:
    """ms of a round, which is a call of the target: all of it, its part in the server (where that makes rounds), and
    in each engine. Where one call follows the other, what is beyond the engines is Triton's and the BLS's.

    None: nothing was drafted, or the engines have no meters.
    """
    count = last.calls.get("target", 0) - first.calls.get("target", 0)
    if last.drafts == first.drafts or not count:
        return None
    busy = {role: (last.busy[role] - first.busy[role]) / count * 1e3 for role in last.busy}
    whole = seconds / count * 1e3
    return {
        "rounds": count,
        "ms": whole,
        "in_server_ms": (last.round_seconds - first.round_seconds) / count * 1e3,
        "draft_ms": busy["draft"],
        "target_ms": busy["target"],
        "beyond_engines_ms": whole - sum(busy.values()),
    }
