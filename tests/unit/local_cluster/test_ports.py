"""Ports of the tests' own servers are nobody else's."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.addresses import CLUSTERS, Addresses
from cluster.ports import free_port

pytestmark = pytest.mark.nightly

EPHEMERAL = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def test_they_are_not_given_to_connections_nor_to_clusters() -> None:
    ports = [free_port() for _ in range(3000)]
    assert max(ports) < EPHEMERAL, "else a connection takes one before the server listens"
    assert min(ports) > max(Addresses(CLUSTERS - 1).ports)


def test_none_is_given_twice_in_a_row_nor_to_two_processes() -> None:
    given = [free_port() for _ in range(200)]
    several = "from cluster.ports import free_port; print(*(free_port() for _ in range(200)), flush=True); input()"
    command, tests = [sys.executable, "-c", several], Path(__file__).parents[2]
    with ExitStack() as running:
        for _ in range(2):
            process = running.enter_context(
                subprocess.Popen(command, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert process.stdout
            given += map(int, process.stdout.readline().split())
    assert len(set(given)) == len(given) == 600


def test_one_that_is_in_use_is_left_out() -> None:
    with socket.socket() as held:
        port = free_port() + 1
        held.bind(("127.0.0.1", port))
        held.listen()
        assert free_port() != port
