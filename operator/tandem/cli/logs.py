"""`tandem logs`: of all pods of a service and of its Jobs, those that fail first."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from tandem import names
from tandem.api import GROUP, PLURAL
from tandem.api.wire import Object
from tandem.client import kubectl
from tandem.cluster.manifests import created
from tandem.cluster.pods import ended_well, pod_ready
from tandem.cluster.problems import pod_problem

POLL_SECONDS = 3.0
"""Between two looks for pods that are new, while logs are followed."""
Write = Callable[[str, str], None]
"""Takes a prefix, and a line."""
Lines = asyncio.Queue[tuple[str, str]]
"""The same, as they come."""


@dataclass(frozen=True)
class Wanted:
    """Which part of the logs."""

    tail: int = -1
    """Last lines of each container; -1: all."""
    previous: bool = False
    """Of the run before the last restart."""

    @property
    def options(self) -> list[str]:
        """kubectl's."""
        return [f"--tail={self.tail}", *(["--previous"] if self.previous else [])]


@dataclass(frozen=True)
class Log:
    """A container's."""

    namespace: str
    pod: str
    container: str

    @property
    def prefix(self) -> str:
        """Before each of its lines."""
        return f"[{self.pod}/{self.container}]"

    def arguments(self, wanted: Wanted) -> list[str]:
        """kubectl's."""
        return ["logs", self.pod, "--namespace", self.namespace, "--container", self.container, *wanted.options]


async def show(name: str, namespace: str | None, wanted: Wanted, write: Write) -> int:
    """Write the logs that there are, one after the other; returns how many. Raises kubectl.ClusterError."""
    found = logs(await _pods(name, namespace), wanted.previous)
    for log in found:
        async with aclosing(kubectl.lines(*log.arguments(wanted))) as lines:
            async for line in lines:
                write(log.prefix, line)
    return len(found)


async def follow(name: str, namespace: str | None, wanted: Wanted, write: Write) -> None:
    """Write lines as they come, of new pods too, until cancelled. Raises kubectl.ClusterError at the first look."""
    pods = await _pods(name, namespace)
    queue: Lines = asyncio.Queue(maxsize=1000)
    async with asyncio.TaskGroup() as group:
        group.create_task(_look(group, pods, lambda: _pods(name, namespace), wanted, queue))
        while True:
            write(*await queue.get())


async def _look(
    group: asyncio.TaskGroup,
    pods: Sequence[Object],
    again: Callable[[], Awaitable[list[Object]]],
    wanted: Wanted,
    queue: Lines,
) -> None:
    """Have each container's log read, as soon as there is one."""
    reading = set[Log]()
    while True:
        for log in logs(pods, wanted.previous):
            if log not in reading:
                reading.add(log)
                group.create_task(_read(log, wanted, queue))
        await asyncio.sleep(POLL_SECONDS)
        with contextlib.suppress(kubectl.ClusterError):  # it is asked again
            pods = await again()


async def _read(log: Log, wanted: Wanted, queue: Lines) -> None:
    async with aclosing(kubectl.lines(*log.arguments(wanted), "--follow")) as lines:
        async for line in lines:
            await queue.put((log.prefix, line))


async def _pods(name: str, namespace: str | None) -> list[Object]:
    place = ["--namespace", namespace] if namespace else []
    found = await kubectl.listed("pods", *place, "--selector", f"{names.LABEL_SERVICE}={name}")
    if not found:  # an error where there is no such service
        await kubectl.get(f"{PLURAL}.{GROUP}", name, *place)
    return found


def logs(pods: Iterable[Object], previous: bool = False) -> list[Log]:
    """The logs that there are, of failing pods first, then the newest. Pure."""
    newest = sorted(pods, key=created, reverse=True)
    ordered = sorted(newest, key=lambda pod: not fails(pod))
    return [
        Log(pod["metadata"]["namespace"], pod["metadata"]["name"], container)
        for pod in ordered
        for container in _started(pod, previous)
    ]


def fails(pod: Object) -> bool:
    """Whether something keeps a pod from its work, or kept it. Pure."""
    if pod_ready(pod) or ended_well(pod):
        return False
    return pod.get("status", {}).get("phase") == "Failed" or pod_problem(pod) is not None


def _started(pod: Object, previous: bool) -> Iterator[str]:
    """Containers that have a log; failed ones first."""
    status = pod.get("status", {})
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    state = "lastState" if previous else "state"
    begun = [each for each in every if each.get(state, {}).keys() & {"running", "terminated"}]
    if not previous:  # one that waits for its restart still has the log of its last run
        begun += [each for each in every if "waiting" in each.get("state", {}) and each.get("lastState")]
    for each in sorted(begun, key=lambda each: not _failed(each)):
        yield each["name"]


def _failed(container: Object) -> bool:
    ends = [container.get(state, {}).get("terminated") for state in ("state", "lastState")]
    return any(end and end.get("exitCode") for end in ends)
