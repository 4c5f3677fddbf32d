"""What the LLM-API model counts of a sequence."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tandem_serving import metrics as m
from tandem_serving.errors import Survived
from tandem_serving.llmapi.chunks import SequenceOutput
from tandem_serving.llmapi.request import LlmApiPrompt

_UNCOUNTED = Survived("a sequence could not be counted")


@dataclass
class Meter:
    """Counts a sequence while it runs."""

    metrics: m.Metrics
    arrived: float
    _last_at: float = 0.0
    _tokens: int = 0

    def count(self, progress: SequenceOutput, streamed: bool) -> None:
        """Count the tokens that are new."""
        with _UNCOUNTED:
            self._count(progress, streamed)

    def finish(self, prompt: LlmApiPrompt, progress: SequenceOutput, reports_drafts: bool) -> None:
        """Count the whole; of speculation what the engine reports."""
        with _UNCOUNTED:
            self._finish(prompt, progress, reports_drafts)

    def _count(self, progress: SequenceOutput, streamed: bool) -> None:
        now, new = time.monotonic(), len(progress.ids) - self._tokens
        if not new:
            return
        if self._last_at:
            self.metrics.observe(m.INTER_TOKEN, (now - self._last_at) / new, new)
        elif streamed:
            self.metrics.observe(m.FIRST_TOKEN, now - self.arrived)
        self.metrics.add(m.GENERATION_TOKENS, new)
        self._last_at = now
        self._tokens = len(progress.ids)

    def _finish(self, prompt: LlmApiPrompt, progress: SequenceOutput, reports_drafts: bool) -> None:
        self.metrics.add(m.PROMPT_TOKENS, len(prompt.ids))
        self.metrics.observe(m.LATENCY, time.monotonic() - self.arrived)
        metrics = progress.metrics
        counts = {
            m.DRAFTS: metrics.iterations(self._tokens),
            m.ACCEPTED: metrics.accepted(self._tokens),
            m.DRAFT_TOKENS: metrics.draft_tokens,
        }
        for family, value in counts.items():
            if reports_drafts and value is not None:
                self.metrics.add(family, value)
