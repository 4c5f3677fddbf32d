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
_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ->")


@dataclass(frozen=True)
class Found:
    """A service as the cluster shows it; `problem` is empty when it is Ready. `openai_url`: base URL of its OpenAI
    endpoint in the cluster; empty: it has none."""

    name: str
    namespace: str
    problem: str
    openai_url: str = ""


def read_service(resource: dict[str, Any]) -> Found:
    """Whether a SpeculativeInferenceService object is Ready. Pure."""
    meta, status = resource["metadata"], resource.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    ready = conditions.get(ConditionType.READY)
    if ready is None or status.get("observedGeneration", 0) < meta.get("generation", 0):
        problem = "the operator has not acted on it yet: check that it runs"
    elif ready["status"] != "True" or ready["reason"] == ServingReason.SCALED_TO_ZERO:
        problem = f"{ready['reason']}: {ready['message']}"
    else:
        problem = ""
    return Found(meta["name"], meta["namespace"], problem, status.get("openAIURL", ""))


async def find_ready(name: str, namespace: str | None, wait: float, progress: Callable[[str], None]) -> Found:
    """The service, once it is Ready; reports to `progress` what it waits for, up to `wait` seconds.

    Raises:
        ClusterError: it does not exist, or is not Ready in time; no kubectl; no cluster.
    """
    deadline = time.monotonic() + wait
    place = ["--namespace", namespace] if namespace else []
    command = [f"{PLURAL}.{GROUP}", name, *place]
    while True:
        found = read_service(await kubectl.get(*command, otherwise=OTHERWISE))
        if not found.problem:
            return found
        if time.monotonic() >= deadline:
            hint = "" if wait else " (--wait SECONDS waits for it)"
            raise ClusterError(f"{found.namespace}/{name} is not Ready: {found.problem}{hint}")
        progress(f"waiting for {found.namespace}/{name}: {found.problem}")
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
