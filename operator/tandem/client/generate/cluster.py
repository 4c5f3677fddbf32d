"""A service in a cluster, by `kubectl`: found, waited for, and reached through a port-forward.

`kubectl` does all three, so that they agree on the kubeconfig, its context, namespace and credentials.
"""

import asyncio
import contextlib
import re
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from tandem import names
from tandem.api import GROUP, PLURAL, ports
from tandem.api.conditions import ConditionType, ServingReason
from tandem.client import kubectl
from tandem.client.kubectl import ClusterError

POLL_SECONDS = 2
OTHERWISE = ", or give --url HOST:PORT of the gRPC port"
"""What to do without kubectl."""
_ALL_OF_ONE_REVISION = (ServingReason.SERVERS_ANSWER, ServingReason.REPLICAS_NOT_READY)
"""Reasons of Ready while all servers that answer are of the wanted revision."""
_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ->")


@dataclass(frozen=True)
class Found:
    """A service as the cluster shows it."""

    name: str
    namespace: str
    problem: str
    """Why no server of it answers; empty when one does."""
    openai_url: str = ""
    """Base URL of its OpenAI endpoint in the cluster; empty: it has none."""
    rollout: str = ""
    """Why servers that answer may not be of the revision that the specification asks for; empty when they are."""


def read_service(resource: dict[str, Any]) -> Found:
    """What a SpeculativeInferenceService object says of its servers. Pure."""
    meta, status = resource["metadata"], resource.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    ready, available = conditions.get(ConditionType.READY), conditions.get(ConditionType.AVAILABLE, {})
    if ready is None or status.get("observedGeneration", 0) < meta.get("generation", 0):
        why = "the operator has not acted on it yet: check that it runs"
    else:
        why = "" if ready["reason"] in _ALL_OF_ONE_REVISION else f"{ready['reason']}: {ready['message']}"
    if available.get("status") == "True":
        return Found(meta["name"], meta["namespace"], "", status.get("openAIURL", ""), why)
    return Found(meta["name"], meta["namespace"], why or str(available.get("message", "")))


async def find_available(name: str, namespace: str | None, wait: float, progress: Callable[[str], None]) -> Found:
    """The service, once a server of it answers. Up to `wait` seconds it waits for that, and for the end of a rollout,
    and reports to `progress` for what.

    Raises:
        ClusterError: it does not exist, or no server answers in time; no kubectl; no cluster.
    """
    deadline = time.monotonic() + wait
    place = ["--namespace", namespace] if namespace else []
    command = [f"{PLURAL}.{GROUP}", name, *place]
    while True:
        found = read_service(await kubectl.get(*command, otherwise=OTHERWISE))
        over = time.monotonic() >= deadline
        if not found.problem and (over or not found.rollout):
            return found
        if over:
            hint = "" if wait else " (--wait SECONDS waits for it)"
            raise ClusterError(f"no server of {found.namespace}/{name} answers: {found.problem}{hint}")
        progress(f"waiting for {found.namespace}/{name}: {found.problem or found.rollout}")
        await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def port_forward(service: Found, port: int = ports.GRPC) -> AsyncIterator[str]:
    """HOST:PORT on this machine that leads to one of the service's pods, at that port of the Service.

    Raises:
        ClusterError: kubectl is missing or cannot forward.
    """
    # A process group of its own: Ctrl-C in a terminal must not end the forward before the streams.
    process = await asyncio.create_subprocess_exec(
        *kubectl.command("port-forward", "--namespace", service.namespace, otherwise=OTHERWISE),
        *(f"service/{names.endpoint(service.name)}", f":{port}"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    drain = None
    try:
        address = await _forwarded(process)
        drain = asyncio.ensure_future(_drain(process))
        yield address
    finally:
        await kubectl.stop(process)
        if drain:
            await drain


async def _forwarded(process: Process) -> str:
    assert process.stdout
    last = ""
    async for raw in process.stdout:
        line = raw.decode("utf-8", "replace").strip()
        if match := _FORWARDING.search(line):
            return match.group(1)
        last = line or last
    raise ClusterError(f"kubectl cannot forward a port to the service: {last or 'it ended without an error message'}")


async def _drain(process: Process) -> None:
    # A full pipe would block kubectl, which writes a line for each connection.
    assert process.stdout
    async for _ in process.stdout:
        pass
