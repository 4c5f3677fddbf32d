"""Rollout: how servers of a new revision take the place of the old ones."""

from typing import Annotated, Literal

from pydantic import Field

from tandem.api.types.base import Model


class Rollout(Model):
    """How a new revision takes the place of the one that serves."""

    strategy: Literal["Surge", "Replace"] = "Surge"
    """Surge: new servers answer before old ones stop, which takes free GPUs; without any the rollout waits, while the
    old revision serves on. Replace: old servers stop first, for the last GPUs. Nothing answers until the new ones do.
    It begins when models, engines and preflight are done, and at the deadline the old revision comes back."""
    progress_deadline_seconds: Annotated[int, Field(ge=1, le=604800)] = 3900
    """A rollout in which no further server has answered for so long is Stalled. The default is 300 s above the hour
    that a server may take to start. A longer one leaves servers as much longer to start: it makes a new revision."""
    revision_history_limit: Annotated[int, Field(ge=0, le=100)] | None = None
    """Old revisions that are kept for going back, besides those that pods run; absent: the operator's setting."""
