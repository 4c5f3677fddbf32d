"""Ports for servers that tests and benchmarks start as processes of their own: chosen now, listened on seconds later.

They lie below those that Linux gives to outgoing connections and to who binds port 0 (32768 and up), and above those
of clusters (`addresses`): so nobody takes one in between. Each process that asks for some (workers of pytest-xdist,
benchmarks side by side, another clone's tests) has a stretch of its own, whose first port it keeps bound.
"""

from __future__ import annotations

import functools
import itertools
import socket

from cluster.addresses import port_is_free
from cluster.errors import ClusterError

FIRST, STRETCH, STRETCHES = 21000, 400, 28
_numbers = itertools.count()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens, and which was not given out lately.

    Raises ClusterError where too many processes have ports.
    """
    first = int(_first().getsockname()[1]) + 1
    candidates = (first + next(_numbers) % (STRETCH - 1) for _ in range(STRETCH))
    return next(port for port in candidates if port_is_free(port))


@functools.cache
def _first() -> socket.socket:
    """The first port of this process's stretch, bound until the process ends."""
    held = socket.socket()
    for number in range(STRETCHES):
        try:
            held.bind(("127.0.0.1", FIRST + STRETCH * number))
        except OSError:  # it is another process's
            continue
        return held
    raise ClusterError(f"{STRETCHES} processes have taken ports for tests already: end some of them")
