"""Ports for servers that tests start as processes of their own: chosen now, listened on some seconds later.

They lie below those that Linux gives to outgoing connections and to who binds port 0 (32768 and up), and above those
of clusters (`addresses`): so nobody takes one in between. Processes that run tests at the same time (pytest-xdist's
workers) have stretches of their own.
"""

from __future__ import annotations

import itertools
import os

from cluster.addresses import port_is_free

FIRST, STRETCH, STRETCHES = 21000, 800, 14
_numbers = itertools.count()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens, and which was not given out lately."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    start = FIRST + STRETCH * (int(worker) % STRETCHES)
    candidates = (start + next(_numbers) % STRETCH for _ in range(STRETCH))
    return next(port for port in candidates if port_is_free(port))
