"""Results: the tokens of the target alone in groups, as if drafts had been accepted."""

import os
from dataclasses import replace

from reference_engine.request import Finish, Output, Stats
from reference_llm.executor import result


class RequestOutput(result.RequestOutput):
    """A request's output. `group`: tokens an iteration gives."""

    def __init__(self, request_id: int, prompt_token_ids: list[int], streaming: bool, group: int) -> None:
        super().__init__(request_id, prompt_token_ids, streaming)
        print(f"stand-in: request {request_id} started", flush=True)
        self._group = group
        self._groups = 0
        self._count = 0
        self._pending: list[int] = []

    def abort(self) -> None:
        """Abort the request, and say so."""
        print(f"stand-in: request {self.request_id} aborted", flush=True)
        super().abort()

    def add(self, output: Output) -> None:
        """Take an output of the engine: an iteration's worth of tokens makes a response."""
        self._pending += output.tokens
        log_probs = output.log_probs
        while len(self._pending) >= self._group or output.finish:
            tokens, self._pending = self._pending[: self._group], self._pending[self._group :]
            self._groups += bool(tokens)
            self._count += len(tokens)
            last = bool(output.finish) and not self._pending
            super().add(replace(self._counted(output, last), tokens=tokens, log_probs=log_probs))
            log_probs = []
            if last:
                break

    def _count_round(self, stats: Stats) -> None:
        """No version counts rounds by what they accepted."""

    def _counted(self, output: Output, last: bool) -> Output:
        """Version 1.2 does not count what was drafted."""
        drafted = (self._group - 1) * self._groups if os.environ.get("STAND_IN_VERSION") == "1.3" else 0
        accepted = self._count - self._groups if drafted else 0
        stats = replace(output.stats, draft_tokens=drafted, accepted_draft_tokens=accepted)
        return replace(output, finish=output.finish if last else Finish.NONE, stats=stats)
