"""The commands, each a thin shell over one module.

Each imports what it needs when it runs: `tandem --help` waits for none of it.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import tandem
from tandem import names
from tandem.api import ports
from tandem.cli import benchmark as bench_command
from tandem.cli import conformance as conformance_command
from tandem.cli import generate as generate_command
from tandem.errors import TandemError

if TYPE_CHECKING:
    from tandem.settings import Settings

app = typer.Typer(
    help="Speculative decoding on NVIDIA Triton and TensorRT-LLM, operated on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
operator_app = typer.Typer(help="The Kubernetes operator.", no_args_is_help=True)
app.add_typer(operator_app, name="operator")
metrics_app = typer.Typer(help="The metrics server, for autoscaling and status.", no_args_is_help=True)
app.add_typer(metrics_app, name="metrics")
cache_app = typer.Typer(help="The volume of downloaded models and built engines.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")

SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="Settings file (YAML); defaults when not given.")
]


@contextlib.contextmanager
def user_errors() -> Any:
    """Turn errors that Tandem raises on purpose into one line and exit code 1."""
    try:
        yield
    except (TandemError, ExceptionGroup) as raised:
        error = _alone(raised)
        if not isinstance(error, TandemError):
            raise
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error


def _alone(raised: Exception) -> Exception:
    """What a group of one is of: a task that ended the others."""
    while isinstance(raised, ExceptionGroup) and len(raised.exceptions) == 1:
        (raised,) = raised.exceptions
    return raised


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(tandem.__version__)


@app.command()
def crd(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The fields as a page (docs/reference/api.md).")
    ] = False,
) -> None:
    """Print the CustomResourceDefinition, made from the API types."""
    if markdown:
        from tandem.api.reference import api_reference

        typer.echo(api_reference(), nl=False)
        return
    import yaml

    from tandem.api.crd import crd as make_crd

    typer.echo(yaml.safe_dump(make_crd(), sort_keys=False, width=110), nl=False)


@app.command(hidden=True)
def chart(folder: Annotated[Path, typer.Argument(help="The chart, such as charts/tandem.")]) -> None:
    """Write the chart's generated files, made from the types of the settings and from the autoscaling sources."""
    from tandem.cli.chart import generated

    for path, text in generated(folder).items():
        path.write_text(text, encoding="utf-8")


@app.command()
def conditions() -> None:
    """Print every condition and reason, with what it means and what to do (docs/reference/conditions.md)."""
    from tandem.api.conditions.reference import conditions_reference

    typer.echo(conditions_reference(), nl=False)


ResourceFiles = Annotated[
    list[Path],
    typer.Option("-f", "--filename", help="Resources (YAML); - for standard input. Repeat for more files."),
]


@app.command()
def render(
    files: ResourceFiles,
    settings: SettingsFile = None,
    trtllm: Annotated[
        bool, typer.Option("--trtllm-config", help="The file for trtllm-serve and trtllm-bench --config instead.")
    ] = False,
) -> None:
    """Print the children of a SpeculativeInferenceService, offline: what the operator would apply."""
    from tandem.cli.manifests import accepted, judge_files
    from tandem.cli.render import render_manifests, trtllm_config
    from tandem.settings import load_settings

    with user_errors():
        loaded = load_settings(settings)
        services = accepted(judge_files(files, loaded))
        for service, profile in services:
            _warn(service.name, profile.warnings)
        if trtllm:
            text, commands = trtllm_config(services)
            for what, command in commands:
                typer.echo(f"{what}: {command}", err=True)
        else:
            text = render_manifests(services, loaded)
        typer.echo(text, nl=False)


@app.command()
def validate(files: ResourceFiles, settings: SettingsFile = None) -> None:
    """Say whether the API server and the operator would accept SpeculativeInferenceServices, offline.

    All faults of all files, each with its line. Exit code 0 when there are none. Models, nodes and the rest of the
    cluster are not looked at.
    """
    from tandem.cli.manifests import judge_files
    from tandem.settings import load_settings

    with user_errors():
        judged = judge_files(files, load_settings(settings))
    for one in judged:
        for fault in one.faults:
            typer.secho(fault, fg=typer.colors.RED, err=True)
        if one.accepted:
            _warn(one.name, one.accepted.warnings)
            typer.echo(f"{one.name}: accepted, profile {one.accepted.profile.name}")
    if any(one.faults for one in judged):
        raise typer.Exit(1)


def _warn(name: str, warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {name}: {warning}", fg=typer.colors.YELLOW, err=True)


app.command(help=bench_command.HELP, epilog=bench_command.EXIT_CODES)(user_errors()(bench_command.bench))
app.command(help=conformance_command.HELP, epilog=conformance_command.EXIT_CODES)(
    user_errors()(conformance_command.conformance)
)
app.command(help=generate_command.HELP, epilog=generate_command.EXIT_CODES)(user_errors()(generate_command.generate))


CacheNamespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Namespace of the services and the claim; the context's by default."),
]


@cache_app.command("prune")
def cache_prune(
    namespace: CacheNamespace = None,
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim to clear up.")] = names.CACHE_CLAIM,
    image: Annotated[
        str | None, typer.Option(help="Image of the fetcher: the chart's fetcherImage. This version's by default.")
    ] = None,
    young: Annotated[int, typer.Option(min=0, help="Keep what was written or used within so many seconds.")] = 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> None:
    """Remove models and engines that no service of the namespace refers to."""
    from tandem.cli import cache

    with user_errors():
        found = asyncio.run(cache.prune(namespace, claim, image, young=young, dry_run=dry_run))
    typer.echo(cache.report(found, dry_run=dry_run))


Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Its namespace; the context's by default.")]


@app.command("status")
def show_status(
    name: Annotated[str, typer.Argument(help="SpeculativeInferenceService in the current kubeconfig's cluster.")],
    namespace: Namespace = None,
) -> None:
    """Show one service: conditions, pods, what speculation is worth, and why it has that many replicas."""
    from tandem.cli import status, words

    with user_errors():
        found = asyncio.run(status.read(name, namespace))
        status.show(words.console(), *found, words.now())


@app.command("top")
def show_top(
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Services of all namespaces.")] = False,
    watch: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="Show it again and again, this often.")
    ] = None,
) -> None:
    """Show services with their load and what speculation is worth, the busiest first.

    RUN, WAIT and TOKENS/S come from Tandem's metrics server, through the custom metrics API; the rest from status,
    where AGE is that of the figures of speculation. A narrow terminal shows fewer columns.
    """
    from tandem.cli import top, words

    with user_errors():
        asyncio.run(top.top(words.console(), namespace, everywhere=everywhere, watch=watch))


LogFormat = Annotated[Literal["json", "text"], typer.Option(help="How log lines look.")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="What is logged.")]


@operator_app.command("run")
def operator_run(
    settings: SettingsFile = None,
    bind: Annotated[
        str, typer.Option(help="Address of probes and metrics; without a host all, IPv4 and IPv6.")
    ] = f":{ports.PROBES}",
    log_format: LogFormat = "json",
    log_level: LogLevel = "info",
) -> None:
    """Run the operator with the pod's service account, or the current kubeconfig."""
    host, port = _address(bind, "--bind")
    _configure_logging(log_format, log_level)
    from tandem.settings import load_settings

    with user_errors():
        asyncio.run(_run_operator(load_settings(settings), host, port))


@metrics_app.command("run")
def metrics_run(
    settings: SettingsFile = None,
    bind: Annotated[
        str, typer.Option(help="Address of probes and own metrics (HTTP); without a host all.")
    ] = f":{ports.PROBES}",
    secure_bind: Annotated[
        str, typer.Option(help="Address of the metrics APIs (HTTPS); likewise.")
    ] = f":{ports.METRICS_APIS}",
    log_format: LogFormat = "json",
    log_level: LogLevel = "info",
) -> None:
    """Read the services' metrics, and serve what autoscalers and the operator ask for."""
    http, https = _address(bind, "--bind"), _address(secure_bind, "--secure-bind")
    _configure_logging(log_format, log_level)
    from tandem.settings import load_settings

    with user_errors():
        asyncio.run(_run_metrics(load_settings(settings), http, https))


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{text!r}: write HOST:PORT, or :PORT for all addresses", param_hint=option)
    return host.strip("[]"), int(port)


async def _run_operator(settings: "Settings", host: str, port: int) -> None:
    from tandem.cluster.client import Api
    from tandem.process.operator import Operator

    async with await Api.connect() as api:
        await _until_told_to_end(Operator(api, settings).run(host, port))


async def _run_metrics(settings: "Settings", http: tuple[str, int], https: tuple[str, int]) -> None:
    from tandem.cluster.client import Api
    from tandem.metrics_server.process import MetricsServer

    async with await Api.connect() as api:
        await _until_told_to_end(MetricsServer(api, settings).run(http, https))


async def _until_told_to_end(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _configure_logging(log_format: str, log_level: str) -> None:
    handler = logging.StreamHandler()
    if log_format == "json":
        from pythonjsonlogger.json import JsonFormatter

        fields = "%(asctime)s %(levelname)s %(name)s %(message)s"
        handler.setFormatter(JsonFormatter(fields, rename_fields={"asctime": "time", "levelname": "level"}))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level.upper(), handlers=[handler], force=True)
    # kopf logs each failed try of a watch as an error: the operator says what matters itself.
    logging.getLogger("kopf").setLevel("WARNING" if log_level != "debug" else "DEBUG")
