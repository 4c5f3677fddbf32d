"""What vLLM's scheduler reports after each of its steps (vllm/v1/metrics/stats.py), counted up. Pure: vLLM's objects
come in, and are only read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tandem_serving.llmapi.statistics import EngineState, Speculation


@dataclass
class Statistics:
    """A stat logger of AsyncLLM, which it calls on its event loop; `blocks`: all of the KV cache."""

    blocks: int = 0
    _running: int = 0
    _waiting: int = 0
    _usage: float = 0.0
    _preemptions: int = 0
    _drafts: int = 0
    _drafted: int = 0
    _accepted: list[int] = field(default_factory=list)

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """Of one step; either may be None."""
        if iteration_stats is not None:
            self._preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is None:
            return
        self._running, self._usage = scheduler_stats.num_running_reqs, scheduler_stats.kv_cache_usage
        self._waiting = scheduler_stats.num_waiting_reqs
        if (told := scheduler_stats.spec_decoding_stats) is not None:
            self._drafts += told.num_drafts
            self._drafted += told.num_draft_tokens
            accepted = told.num_accepted_tokens_per_pos
            self._accepted += [0] * (len(accepted) - len(self._accepted))
            for position, count in enumerate(accepted):
                self._accepted[position] += count

    def take(self) -> EngineState:
        """The state, with what was counted since the last time."""
        speculation = Speculation(self._drafts, self._drafted, tuple(self._accepted)) if self._drafts else None
        state = EngineState(
            self._running,
            self.blocks,
            round(self._usage * self.blocks),
            waiting=self._waiting,
            preemptions=self._preemptions,
            speculation=speculation,
        )
        self._drafts = self._drafted = self._preemptions = 0
        self._accepted = []
        return state

    def log_engine_initialized(self) -> None:
        """Nothing: vLLM's own log says it."""

    def log(self) -> None:
        """Nothing: the metrics say it."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Nothing: it never sleeps."""
