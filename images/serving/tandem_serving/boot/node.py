"""A pod of a group that is not the leader, of an engine whose ranks join the leader's by themselves: no ssh, no MPI.

This process is PID 1 and runs the ranks as a child. On SIGTERM they go on until the leader is gone, since its
requests may need them. When they end, the container ends, and LeaderWorkerSet makes the whole group anew, as it does
when the leader's container ends. Ranks do not notice by themselves that the leader is gone (vLLM issue 32136).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from tandem_serving.boot import launch, mpi, supervise
from tandem_serving.llmapi import arguments, engines
from tandem_serving.llmapi.arguments import ArgumentsError
from tandem_serving.llmapi.engine import ArgumentsRefused
from tandem_serving.prepare import cached

LEADER = "LWS_LEADER_ADDRESS"
PROBE_SECONDS = 2.0


def run(revision: Path, port: int, termination_log: Path = supervise.TERMINATION_LOG) -> int:
    """Run the ranks to their end; returns the exit code. `port`: of the leader, open as long as its ranks live.

    Raises LaunchError, GroupError.
    """
    plan, leader = launch.read_plan(revision), _leader()
    try:
        cached.check_all(plan.preflight)
    except cached.Gone as error:
        raise launch.LaunchError(str(error)) from None
    launch.raise_limits()
    environment = {**os.environ, **plan.env}
    child = supervise.Supervisor(environment, lambda: _outlive(leader, port), termination_log)
    entrypoint = str(Path(sys.argv[0]).resolve())
    child.start([sys.executable, entrypoint, "ranks", f"--revision={revision}", f"--port={port}"])
    return child.wait()


def ranks(revision: Path, port: int) -> NoReturn:
    """The child: wait for the leader, and be its ranks in this pod. Raises LaunchError, GroupError.

    It ends at once, and the container with it: an orderly end would wait for ranks that wait for the leader.
    """
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    told = launch.read_plan(revision).preflight.get("llm_args") or {}
    try:
        engine = engines.find(str(told.get("engine")))
        given = arguments.read(revision / str(told.get("file")))
        mpi.wait_for([_leader()], lambda host: _answers(host, port))
        engine.run_ranks(given)
    except (ArgumentsError, ArgumentsRefused, engines.UnknownEngineError) as error:
        raise launch.LaunchError(str(error)) from None
    sys.stdout.flush()
    os._exit(1)


def _leader() -> str:
    if address := os.environ.get(LEADER):
        return address
    raise mpi.GroupError(f"this pod is in no group ({LEADER} is not set): it must run in its LeaderWorkerSet")


def _outlive(leader: str, port: int) -> None:
    print("SIGTERM: the ranks go on until the leader is gone", flush=True)
    while _answers(leader, port):
        time.sleep(PROBE_SECONDS)


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False
