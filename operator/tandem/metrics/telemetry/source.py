"""Where samples come from: the pods themselves (`scrape`), or a Prometheus that reads them (`prometheus`)."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.api import ports
from tandem.metrics.telemetry.windows import Store

MAX_PROBLEM = 200


@dataclass(frozen=True)
class ScrapeTarget:
    """A server pod."""

    uid: str
    namespace: str
    name: str
    address: str
    """An IP address, `status.podIP`; a name is never looked up."""
    port: int = ports.METRICS
    revision: str = ""
    """Digest of what it serves."""


class MetricsSource(Protocol):
    """Reads all pods once."""

    async def collect(self, targets: Sequence[ScrapeTarget], store: Store) -> Mapping[str, str]:
        """Add what the pods say to the store.

        Returns:
            Pods, by uid, that could not be read, and why: one line, fit for a status. Raises nothing for a pod.
        """
        ...


def problem(text: str) -> str:
    """A text that a pod may have had a hand in, as one short line of printable characters."""
    line = "".join(c if c.isascii() and unicodedata.category(c)[0] != "C" else "?" for c in text)
    return line if len(line) <= MAX_PROBLEM else f"{line[: MAX_PROBLEM - 3]}..."
