"""vLLM over the pods of a group: which pod is which node, and the ranks of a pod that is not the leader.

The operator writes `nnodes` and `master_port`; LeaderWorkerSet tells each pod its number and the leader's address.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("tandem.llmapi")

LEADER, INDEX = "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"
OWN_ADDRESS = "VLLM_HOST_IP"
LOOK_SECONDS = 0.5


def placed(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of this pod's node; outside of a group, as in a preflight, those of the first."""
    if (arguments.get("nnodes") or 1) == 1 or LEADER not in environment:
        return dict(arguments)
    return {**arguments, "master_addr": environment[LEADER], "node_rank": int(environment[INDEX])}


def run_ranks(config: Any) -> None:
    """The ranks of this pod, until one of them ends. `config`: a VllmConfig. The others end with the container."""
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    tell_own_address(config.parallel_config.master_addr, config.parallel_config.master_port)
    executor = MultiprocExecutor(config, monitor_workers=False)
    # Its own monitor has been seen to return while all of them lived.
    while all(worker.proc.is_alive() for worker in executor.workers):
        time.sleep(LOOK_SECONDS)
    log.error("a rank of this node has ended, see above")


def tell_own_address(leader: str, port: int) -> None:
    """Have vLLM announce the address by which this pod reaches the leader, not the one towards the internet."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(leader, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)  # of UDP: nothing is sent
            os.environ.setdefault(OWN_ADDRESS, str(way.getsockname()[0]))
