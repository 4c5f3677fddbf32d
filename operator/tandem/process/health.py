"""The operator's health: the API server answers, the watches live."""

import time
from dataclasses import dataclass

from tandem.cluster.client import Api
from tandem.cluster.lease import Leadership
from tandem.cluster.sole_operator import SoleOperator
from tandem.process.events import EventSource
from tandem.process.resync import Resync

API_SILENT_SECONDS = 20


@dataclass
class Health:
    """The operator's: the API server answers, the watches live."""

    api: Api
    leadership: Leadership
    source: EventSource
    resync: Resync
    resync_seconds: float
    started_at: float
    sole_operator: SoleOperator

    def not_ready(self) -> str:
        """Why the operator cannot do its work now; empty when it can."""
        silent = time.monotonic() - (self.api.answered_at or self.started_at)
        if silent > API_SILENT_SECONDS:
            return f"the API server has not answered for {silent:.0f} s"
        if self.sole_operator.problem:
            return self.sole_operator.problem
        if self.resync.problem:
            return self.resync.problem
        if not self.resync.compared_at:
            return "starting: the watches have not been compared with the API server yet"
        return "" if self.source.watching else "the watches are being started"

    def broken(self) -> str:
        """Why the operator should be restarted; empty when that would not help."""
        now = time.monotonic()
        if now - (self.api.answered_at or self.started_at) > API_SILENT_SECONDS:
            return ""
        stuck = now - (self.resync.moved_at or self.started_at)
        if stuck > 3 * self.resync_seconds + 60 and not self.resync.problem:
            return f"no comparison of the watches for {stuck:.0f} s"
        return ""

    def ready(self) -> str:
        """Whether it is the one that writes, and what it may not do."""
        role = f"ok: {'leader' if self.leadership.acquired.is_set() else 'standby'}"
        return f"{role}, but {self.resync.forbidden}" if self.resync.forbidden else role
