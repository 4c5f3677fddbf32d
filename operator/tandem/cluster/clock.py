"""The API server's clock, by the header `Date` of its answers.

The API server's times are of that clock. This host's may be minutes off: compared with it, a rollout that has just
begun would be past its deadline. Between two answers the monotonic clock counts, which nobody sets.
"""

import logging
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from tandem.times import stamp

log = logging.getLogger(__name__)

SKEW_SECONDS = 10.0
"""Between the two clocks, from which on it is logged: certificates and logs are of this host's."""


class ServerClock:
    """What the API server's clock shows."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._heard_at = 0.0
        self._skewed = False

    def heard(self, date: str | None) -> None:
        """An answer came with this `Date`; one without is no news."""
        try:
            at = parsedate_to_datetime(date or "").astimezone(UTC)
        except ValueError:
            return
        self._at, self._heard_at = at, time.monotonic()
        self._note_skew((datetime.now(UTC) - at).total_seconds())

    def now(self) -> str:
        """RFC 3339; this host's time before the first answer."""
        if self._at is None:
            return stamp(datetime.now(UTC))
        return stamp(self._at + timedelta(seconds=time.monotonic() - self._heard_at))

    def _note_skew(self, ahead: float) -> None:
        skewed = abs(ahead) >= SKEW_SECONDS
        if skewed and not self._skewed:
            log.warning("this host's clock is %.0f s ahead of the API server's: set it, as by NTP", ahead)
        self._skewed = skewed
