"""The commands on services, and `doctor`: each a thin shell, which imports what it needs when it runs."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.options import (
    EXIT_FAILED,
    EXIT_NOT_READY,
    Everywhere,
    Namespace,
    OperatorSettings,
    ResourceFiles,
    ServiceName,
    on_cluster,
    service_names,
)
from tandem.cli.output import Format, Output, write_object
from tandem.client.kubectl import ClusterError
from tandem.errors import TandemError

if TYPE_CHECKING:
    from tandem.api.types import SpeculativeInferenceService
    from tandem.api.wire import Object

EXIT_TROUBLE = 2
"""Of `diff`: kubectl's convention, whose 1 is a difference."""
APPLY_CODES = (
    "Exit codes: 0 applied (and Ready, with --wait); 1 a fault, or not Ready; 2 wrong options; 130 interrupted."
)
DOCTOR_CODES = "Exit codes: 0 no check failed (warnings are possible); 1 a check failed; 2 wrong options."
DIFF_CODES = "Exit codes, as for kubectl diff: 0 nothing would change; 1 something would change; 2 an error."
STATUS_CODES = "Exit codes: 0 Ready; 1 an error; 2 wrong options; 3 a service is not Ready."

Force = Annotated[bool, typer.Option("--force-conflicts", help="Take over fields that other managers own.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until each service is Ready and its rollout is complete.")]
Timeout = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long --wait waits.")]


@on_cluster
def apply(
    files: ResourceFiles,
    namespace: Namespace = None,
    settings: OperatorSettings = None,
    wait: Wait = False,
    timeout: Timeout = 3600,
    force: Force = False,
) -> None:
    """Check resources as `tandem validate` does, and apply them server-side. Other kinds of objects are applied too.

    Services are checked against the settings of the cluster's operator if you may read them. With --wait the command
    shows each stage as it completes, and the progress of downloads and engine builds.
    """
    from tandem.cli import apply as applying

    checked = asyncio.run(applying.check(files, settings))
    if checked.settings is None:
        typer.secho(f"warning: {applying.NOT_ASKED}", fg=typer.colors.YELLOW, err=True)
    applied = asyncio.run(applying.apply(checked.objects, namespace, force=force))
    for each in applied:
        typer.echo(f"{each['kind']} {each['metadata']['name']}: applied")
    if wait:
        _wait(applying.services_of(applied), timeout)


def _wait(services: "list[Object]", seconds: float) -> None:
    from rich.console import Console

    from tandem.cli import apply as applying
    from tandem.client.generate.view import Progress

    doing = Progress(Console(stderr=True, soft_wrap=True))
    try:
        failures = asyncio.run(applying.wait(services, seconds, typer.echo, doing))
    finally:
        doing.close()
    if failures:
        raise ClusterError("; ".join(failures))


@on_cluster
def diff(files: ResourceFiles, namespace: Namespace = None, settings: OperatorSettings = None) -> None:
    """Show what applying resources would change in them and in the services' children. Nothing is changed.

    The API server computes both by dry runs of server-side apply, so you need the right to patch them. For each
    service, a line on standard error says whether its pods roll, and names a workload or autoscaler that would be
    deleted.
    """
    from tandem.cli import apply as applying
    from tandem.cli import diff as differing

    try:
        checked = asyncio.run(applying.check(files, settings))
        text, lines = asyncio.run(differing.diff(checked, namespace))
    except TandemError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(EXIT_TROUBLE) from error
    typer.echo(text, nl=False)
    for line in lines:
        typer.echo(line, err=True)
    if text:
        raise typer.Exit(EXIT_FAILED)


@on_cluster
def doctor(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A service to check as well.", autocompletion=service_names)
    ] = "",
    namespace: Namespace = None,
    settings: OperatorSettings = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check whether the cluster has what Tandem and a service need, and say what to do where it does not.

    The command checks Kubernetes, the CRD, the operator, the custom metrics API, KEDA, Prometheus, storage, GPUs,
    quotas and your own rights. For a service it also checks its conditions, Secrets, ConfigMaps, pull secrets, cache
    claim, and nodes for its GPUs. It warns of what you may not read, and of what works less well.
    """
    from tandem.cli import words
    from tandem.cli.doctor import report
    from tandem.cli.doctor.read import read

    findings = report.examine(asyncio.run(read(name, namespace, settings)))
    if output.is_object:
        write_object(report.as_object(findings), output)
    else:
        console = words.console(wide=output is Format.WIDE)
        console.print(report.table(findings))
        console.print(report.verdict(findings), highlight=False)
    if report.failed(findings, strict=strict):
        raise typer.Exit(EXIT_FAILED)


@on_cluster
def logs(
    name: ServiceName,
    namespace: Namespace = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Stream new lines, also from new pods.")] = False,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="Show the run before the last restart.")] = False,
    tail: Annotated[int, typer.Option(min=-1, help="Lines to show from the end of each log; -1 shows all.")] = 100,
) -> None:
    """Show the logs of a service's pods and Jobs, failing ones first."""
    from rich.text import Text

    from tandem.cli import logs as pod_logs
    from tandem.cli import words
    from tandem.client.generate.format import printable

    console, wanted = words.console(), pod_logs.Wanted(tail, previous)

    def write(prefix: str, line: str) -> None:
        # A terminal must not obey what a pod writes.
        shown = printable(line) if console.is_terminal else line
        console.print(Text.assemble((prefix, "cyan"), " ", shown), soft_wrap=True, highlight=False)

    if follow:
        asyncio.run(pod_logs.follow(name, namespace, wanted, write))
    elif not asyncio.run(pod_logs.show(name, namespace, wanted, write)):
        typer.echo(f"{name} has no containers with logs yet: see `tandem status {name}`", err=True)


@on_cluster
def events(name: ServiceName, namespace: Namespace = None) -> None:
    """Show the events of a service and its children, oldest first; children that are gone are included."""
    from tandem.cli import events as listing
    from tandem.cli import words

    found = asyncio.run(listing.read(name, namespace))
    console = words.console()
    console.print(listing.table(found, words.now(), console.width))


@on_cluster
def status(
    name: ServiceName = "",
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    output: Output = Format.TEXT,
) -> None:
    """Show one service: conditions, pods, what speculation gains, and why it has this many replicas.

    Without a name, list the services of the namespace (with -A, of all namespaces) and their state.
    """
    if name and everywhere:
        raise typer.BadParameter("give a service's name, or -A for all services")
    shown = _show_one(name, namespace, output) if name else _show_all(namespace, everywhere, output)
    from tandem.cli.services import state

    if not all(state(service).ready for service in shown):
        raise typer.Exit(EXIT_NOT_READY)


def _show_one(name: str, namespace: str | None, output: Format) -> "list[SpeculativeInferenceService]":
    from tandem.cli import status, words

    seen = asyncio.run(status.read(name, namespace))
    if output.is_object:
        write_object(status.as_object(seen), output)
    else:
        status.show(words.console(), seen, words.now(), wide=output is Format.WIDE)
    return [seen.service]


def _show_all(namespace: str | None, everywhere: bool, output: Format) -> "list[SpeculativeInferenceService]":
    from tandem.cli import services, words

    found, wide = asyncio.run(services.read(namespace, everywhere)), output is Format.WIDE
    if output.is_object:
        write_object({"services": [services.summary(each) for each in found]}, output)
    else:
        console = words.console(wide=wide)
        console.print(services.table(found, everywhere=everywhere, wide=wide, columns=console.width))
    return found


@on_cluster
def top(
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    watch: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help="Refresh at this interval.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show services with their load and what speculation gains, busiest first.

    RUN, WAIT and TOKENS/S come from Tandem's metrics server, through the custom metrics API. The other columns come
    from status; AGE is the age of its figures. A narrow terminal shows fewer columns; -o wide shows all.
    """
    from tandem.cli import top as board
    from tandem.cli import words

    if not output.is_object:
        console = words.console(wide=output is Format.WIDE)
        asyncio.run(board.top(console, namespace, everywhere=everywhere, watch=watch))
    elif watch:
        raise typer.BadParameter("--watch shows text: leave out -o")
    else:
        asyncio.run(board.write(namespace, everywhere=everywhere, form=output))
