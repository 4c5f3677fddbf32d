"""`kubectl`, for commands that people run: it knows their kubeconfig, its context, namespace and credentials."""

import asyncio
import contextlib
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tandem.api import PLURAL
from tandem.errors import TandemError

API_SERVICE = "v1beta2.custom.metrics.k8s.io"
STOP_SECONDS = 5
PROXY = "no Kubernetes API server answers, but perhaps a proxy in front of it"
UNVALIDATED = "; if you choose to ignore these errors"
"""Begins kubectl's advice about an option of its own."""
LONGEST_LINE = 16 << 20
"""Of a log, bytes."""
_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("options", default=())


class ClusterError(TandemError):
    """The cluster, or something in it, cannot be reached or found; the message says what to do."""


@contextlib.contextmanager
def connected(options: Sequence[str]) -> Iterator[None]:
    """Within it each kubectl gets these options too, such as --context=NAME: the last of several wins."""
    token = _OPTIONS.set((*_OPTIONS.get(), *options))
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def options() -> tuple[str, ...]:
    """The options of each kubectl now."""
    return _OPTIONS.get()


@dataclass(frozen=True)
class KubectlOutput:
    """What a kubectl that has ended wrote."""

    code: int
    out: str
    errors: str
    """Standard error."""

    @property
    def error(self) -> str:
        """The last line of its errors."""
        return (self.errors.splitlines() or ["kubectl failed without an error message"])[-1].removeprefix("error: ")


async def run(*arguments: str, otherwise: str = "", stdin: str = "") -> KubectlOutput:
    """The end of `kubectl <arguments>`, which reads `stdin`, whatever its exit code.

    Raises:
        ClusterError: there is no kubectl; `otherwise` says what to do without it.
    """
    given = PIPE if stdin else DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command(*arguments, otherwise=otherwise), stdin=given, stdout=PIPE, stderr=PIPE
    )
    try:
        out, err = await process.communicate(stdin.encode() or None)
    finally:
        await stop(process)
    assert process.returncode is not None
    return KubectlOutput(process.returncode, out.decode(), err.decode("utf-8", "replace").strip())


async def kubectl(*arguments: str, otherwise: str = "", stdin: str = "") -> str:
    """Standard output of `kubectl <arguments>`, which reads `stdin`.

    Raises:
        ClusterError: it failed, or is not there; `otherwise` says what to do without it.
    """
    answer = await run(*arguments, otherwise=otherwise, stdin=stdin)
    if answer.code:
        raise ClusterError(explain(answer.error))
    return answer.out


async def listed(*arguments: str) -> list[dict[str, Any]]:
    """The objects that `kubectl get <arguments>` lists. Raises ClusterError."""
    return list((await get(*arguments))["items"])


async def get(*arguments: str, otherwise: str = "") -> dict[str, Any]:
    """What `kubectl get <arguments>` finds. Raises ClusterError."""
    return parsed(await kubectl("get", *arguments, "--output=json", "--request-timeout=15s", otherwise=otherwise))


def parsed(text: str) -> dict[str, Any]:
    """The JSON object that kubectl wrote. Raises ClusterError: it is none, such as a proxy's login page."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ClusterError(f"{PROXY}: {' '.join(text[:120].split())!r}")
    return found


async def stop(process: Process) -> None:
    """End a kubectl that still runs."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def explain(message: str) -> str:
    """kubectl's error, and what to do about it."""
    message = message.partition(UNVALIDATED)[0]
    if "invalid character '<'" in message:  # HTML where JSON is due
        return f"{PROXY}: {message}"
    if "doesn't have a resource type" in message:
        return f"Tandem is not installed in this cluster: install its chart ({message})"
    if "could not find the requested resource" in message:
        return f"{message}: check that Tandem's metrics server is registered (chart value metricsServer.register)"
    if "(ServiceUnavailable)" in message:  # its own, or an APIService has no pod that is Ready
        return (
            f"{message}: check that the API server is well (`kubectl get --raw /readyz`) and that Tandem's metrics"
            f" server runs (`kubectl get apiservice {API_SERVICE}`)"
        )
    if "(NotFound)" in message:
        exists = f"; `kubectl get {PLURAL} --all-namespaces` lists those that exist"
        return f"{message}{exists if PLURAL in message and message.endswith('not found') else ''}"
    if named := [each for each in _OPTIONS.get() if each.startswith(("--context=", "--kubeconfig="))]:
        return f"{message}; check {' and '.join(named)}"
    if "localhost:8080" in message:  # where kubectl asks when no file names a cluster
        return f"{message}; kubectl found no kubeconfig: check $KUBECONFIG, or give --kubeconfig FILE"
    return f"{message}; kubectl uses the current kubeconfig: see `kubectl config current-context`"


def command(*arguments: str, otherwise: str = "") -> list[str]:
    """The words of `kubectl <arguments>`, with the options of the connection. Raises ClusterError."""
    path = shutil.which("kubectl")
    if path is None:
        raise ClusterError(f"kubectl is not in PATH: install it{otherwise}")
    return [path, *_OPTIONS.get(), *arguments]


async def lines(*arguments: str) -> AsyncGenerator[str]:
    """What `kubectl <arguments>` writes, its errors too, line by line; it is ended with the iterator.

    Raises:
        ClusterError: there is no kubectl.
    """
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, limit=LONGEST_LINE
    )
    assert process.stdout
    try:
        async for line in process.stdout:
            yield line.decode("utf-8", "replace").rstrip("\r\n")
    finally:
        await stop(process)
