"""How often strangers may have the API server asked about them: token buckets, one for each address and one for all.

https://en.wikipedia.org/wiki/Token_bucket
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

ADDRESS_RATE, ADDRESS_BURST = 0.5, 10.0
"""A second, of one address, and at once: a client asks about a token once, and renews it after minutes."""
TOTAL_RATE, TOTAL_BURST = 10.0, 50.0
"""Of all addresses together."""
ADDRESSES = 4096
IPV6_PREFIX = 64
"""One client may have all addresses of such a network."""


@dataclass
class Bucket:
    """What is left, and when that was."""

    left: float
    at: float

    def refill(self, now: float, rate: float, burst: float) -> float:
        """What there is at `now`."""
        self.left, self.at = min(burst, self.left + rate * (now - self.at)), now
        return self.left


class RateLimit:
    """Allows `TOTAL_RATE` a second, and `ADDRESS_RATE` of one address: a flood from one leaves others their share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = Bucket(TOTAL_BURST, clock())
        self._addresses: OrderedDict[str, Bucket] = OrderedDict()

    def allows(self, address: str) -> bool:
        """Whether `address` may ask now; if so, that counts."""
        now, key = self._clock(), network(address)
        bucket = self._addresses.setdefault(key, Bucket(ADDRESS_BURST, now))
        self._addresses.move_to_end(key)
        while len(self._addresses) > ADDRESSES:
            self._addresses.popitem(last=False)
        if bucket.refill(now, ADDRESS_RATE, ADDRESS_BURST) < 1:
            return False  # it takes nothing of what the others have
        if self._total.refill(now, TOTAL_RATE, TOTAL_BURST) < 1:
            return False
        bucket.left -= 1
        self._total.left -= 1
        return True


def network(address: str) -> str:
    """The client that an address is of; the text itself where it is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
