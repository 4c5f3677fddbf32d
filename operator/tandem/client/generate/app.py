"""`tandem generate` without its command line: target, prompts, session, exit code."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from tandem.client.generate.client import TritonClient
from tandem.client.generate.cluster import find_available, port_forward
from tandem.client.generate.errors import UnreachableError
from tandem.client.generate.figures import PromptResult
from tandem.client.generate.session import CompletionPlan, Session
from tandem.client.generate.view import JsonView, Progress, TextView, View, stdout_console

EXIT_FAILED = 1
EXIT_DIFFERENT = 3


@dataclass(frozen=True)
class Endpoint:
    """Where to send requests: `url` (HOST:PORT), or the service `name` of the current cluster, waited for
    up to `wait_seconds`."""

    name: str = ""
    namespace: str | None = None
    url: str = ""
    wait_seconds: float = 0


def generate(target: Endpoint, plan: CompletionPlan, *, as_json: bool, no_color: bool) -> int:
    """Run a plan and print it; returns the exit code. Signals cancel what runs.

    Raises:
        GenerateError: the service or its server cannot be reached.
    """
    console = stdout_console(no_color)
    progress = Progress(Console(stderr=True, soft_wrap=True))
    greedy = plan.sampling.greedy
    view: View = JsonView(console, greedy, plan.compare) if as_json else TextView(console, progress, greedy)
    try:
        return asyncio.run(until_signal(_run(target, plan, view, progress)))
    finally:
        progress.close()
        view.close()


async def _run(target: Endpoint, plan: CompletionPlan, view: View, progress: Progress) -> int:
    async with connect(target, progress) as server:
        outcomes = await Session(server, plan, view, progress).run()
    return exit_code(outcomes, plan.sampling.greedy)


def exit_code(outcomes: Sequence[PromptResult], greedy: bool) -> int:
    """0: all is well; else the worst that happened to any prompt."""
    if any(outcome.error for outcome in outcomes):
        return EXIT_FAILED
    compared = [outcome.comparison for outcome in outcomes if outcome.comparison]
    different = any(comparison.first_difference is not None for comparison in compared)
    return EXIT_DIFFERENT if greedy and different else 0


@contextlib.asynccontextmanager
async def connect(target: Endpoint, progress: Progress) -> AsyncIterator[TritonClient]:
    """The target's server: a URL's, or a service's by a port-forward.

    Raises:
        GenerateError: it cannot be reached.
    """
    if target.url:
        async with TritonClient(target.url) as server:
            yield server
        return
    found = await find_available(target.name, target.namespace, target.wait_seconds, progress)
    progress("")
    async with port_forward(found) as url, TritonClient(url) as server:
        try:
            yield server
        except UnreachableError as error:
            look = f"see `tandem status {found.name} --namespace {found.namespace}`"
            raise UnreachableError(f"{error}; {url} was forwarded to a pod of the service: {look}") from error


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """The result of `work`; 128 + the signal's number, as shells count, when one cancelled it."""
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)  # nohup ignores it
    for number in (signal.SIGINT, signal.SIGTERM, *hangup):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            return 128 + received[0]
        raise
