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
from typer.completion import completion_init  # type: ignore[attr-defined]

import tandem
from tandem import names
from tandem.api import ports
from tandem.cli import benchmark as bench_command
from tandem.cli import chat as chat_command
from tandem.cli import commands
from tandem.cli import conformance as conformance_command
from tandem.cli import generate as generate_command
from tandem.cli import import_service as import_command
from tandem.cli.options import (
    AsGroup,
    AsUser,
    Commands,
    Context,
    Kubeconfig,
    Namespace,
    ResourceFiles,
    SettingsFile,
    connection,
    on_cluster,
    user_errors,
)
from tandem.client import kubectl

if TYPE_CHECKING:
    from tandem.settings import Settings

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # `tandem completion`, as kubectl has it
    rich_markup_mode="markdown",  # paragraphs are wrapped at the terminal's width
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
completion_init()  # answers shells, which typer does by itself only with its own option to install completion
operator_app = typer.Typer(help="The Kubernetes operator.", no_args_is_help=True)
app.add_typer(operator_app, name="operator")
metrics_app = typer.Typer(help="The metrics server, for autoscaling and status.", no_args_is_help=True)
app.add_typer(metrics_app, name="metrics")
cache_app = typer.Typer(help="The cache volume of downloaded models and built engines.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")

WITHOUT_OPTIONS = ("operator", "metrics")
"""Programs of the cluster: with the pod's service account, or the current context of $KUBECONFIG."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(tandem.__version__)
        raise typer.Exit


@app.callback()
def connect(
    ctx: typer.Context,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    as_user: AsUser = None,
    as_group: AsGroup = None,
    namespace: Namespace = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Speculative decoding on NVIDIA Triton and TensorRT-LLM, operated on Kubernetes."""
    options = connection(ctx.params)
    if options and ctx.invoked_subcommand in WITHOUT_OPTIONS:
        raise typer.BadParameter(f"{ctx.invoked_subcommand} takes none: it uses the current context of $KUBECONFIG")
    ctx.with_resource(kubectl.connected(options))


app.command("apply", epilog=commands.APPLY_CODES)(commands.apply)
app.command("diff", epilog=commands.DIFF_CODES)(commands.diff)
app.command("logs")(commands.logs)
app.command("events")(commands.events)
app.command("status", epilog=commands.STATUS_CODES)(commands.status)
app.command("top")(commands.top)
app.command("doctor", epilog=commands.DOCTOR_CODES)(commands.doctor)
app.command(help=bench_command.HELP, epilog=bench_command.EXIT_CODES)(on_cluster(bench_command.bench))
app.command(help=conformance_command.HELP, epilog=conformance_command.EXIT_CODES)(
    on_cluster(conformance_command.conformance)
)
app.command(help=generate_command.HELP, epilog=generate_command.EXIT_CODES)(on_cluster(generate_command.generate))
app.command("import", help=import_command.HELP, epilog=import_command.EXIT_CODES)(import_command.import_service)
app.command(help=chat_command.HELP, epilog=chat_command.EXIT_CODES)(on_cluster(chat_command.chat))


@app.command()
def render(
    files: ResourceFiles,
    settings: SettingsFile = None,
    trtllm: Annotated[
        bool,
        typer.Option("--trtllm-config", help="Print the file for trtllm-serve and trtllm-bench --config instead."),
    ] = False,
    diff: Annotated[
        list[Path] | None,
        typer.Option(
            "--diff", metavar="FILE", help="Show what changes against these files or folders; may be repeated."
        ),
    ] = None,
    diff_git: Annotated[
        str | None,
        typer.Option(
            "--diff-git", metavar="REVISION", help="Show what changes against the same files at this Git revision."
        ),
    ] = None,
) -> None:
    """Print offline the objects that the operator would apply for a SpeculativeInferenceService.

    With --diff or --diff-git, for pull requests, the command prints how these objects change. For each service, a
    line on standard error says whether its pods roll.
    """
    from tandem.cli.manifests import accepted, judge_files
    from tandem.cli.render import render_manifests, trtllm_config
    from tandem.settings import load_settings

    if (diff is not None) + (diff_git is not None) + trtllm > 1:
        raise typer.BadParameter("give one of --diff, --diff-git and --trtllm-config")
    with user_errors():
        loaded = load_settings(settings)
        if diff is not None or diff_git is not None:
            _show_changes(files, diff, diff_git, loaded)
            return
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


def _show_changes(files: list[Path], diff: list[Path] | None, revision: str | None, settings: "Settings") -> None:
    from tandem.cli.base import at_revision, rollout
    from tandem.cli.manifests import sources

    base = at_revision(files, revision) if revision is not None else sources(diff or [])
    text, lines = rollout(files, base, settings)
    typer.echo(text, nl=False)
    for line in lines:
        typer.echo(line, err=True)


@app.command()
def validate(files: ResourceFiles, settings: SettingsFile = None) -> None:
    """Check offline whether the API server and the operator would accept SpeculativeInferenceServices.

    The command prints all faults of all files, each with its line, and exits with 0 if there are none. It does not
    look at models, nodes or the rest of the cluster.
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
            verified = "" if one.accepted.verified else " (not verified: Tandem's tests never ran it on its hardware)"
            typer.echo(f"{one.name}: accepted, profile {one.accepted.profile.name}{verified}")
    if any(one.faults for one in judged):
        raise typer.Exit(1)


def _warn(name: str, warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {name}: {warning}", fg=typer.colors.YELLOW, err=True)


@app.command()
def crd(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the fields as a page (docs/reference/api.md).")
    ] = False,
) -> None:
    """Print the CustomResourceDefinition."""
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
    """Print every condition and reason, what it means and what to do (docs/reference/conditions.md)."""
    from tandem.api.conditions.reference import conditions_reference

    typer.echo(conditions_reference(), nl=False)


@app.command(hidden=True)
def reference() -> None:
    """Print all commands as a page (docs/reference/cli.md)."""
    from tandem.cli.reference import cli_reference

    typer.echo(cli_reference(app), nl=False)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(tandem.__version__)


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the shell completion script; for bash: `source <(tandem completion bash)`."""
    from tandem.cli.plugin import script

    script(shell)


CacheNamespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Namespace of the services and the claim (default: the context's)."),
]


@cache_app.command("prune")
@on_cluster
def cache_prune(
    namespace: CacheNamespace = None,
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim to clean up.")] = names.CACHE_CLAIM,
    image: Annotated[
        str | None,
        typer.Option(help="The fetcher's image, as in the chart's fetcherImage (default: the operator's)."),
    ] = None,
    young: Annotated[int, typer.Option(min=0, help="Keep what was written or used within this many seconds.")] = 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> None:
    """Remove models and engines that no service of the namespace refers to."""
    from tandem.cli import cache

    found = asyncio.run(cache.prune(namespace, claim, image, young=young, dry_run=dry_run))
    typer.echo(cache.report(found, dry_run=dry_run))


@app.command("ui")
@on_cluster
def open_ui(
    account: Annotated[
        str, typer.Option(help="ServiceAccount ([NAMESPACE/]NAME) to create and print a token for (default: none).")
    ] = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Local port.")] = ports.METRICS_APIS,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="The metrics server's namespace.")
    ] = "tandem-system",
    service: Annotated[str, typer.Option(help="The metrics server's Service.")] = "tandem-metrics",
) -> None:
    """Forward a port to the metrics server's page, and print its address."""
    from tandem.cli import ui

    ui.open_page(namespace, service, port, account)


LogFormat = Annotated[Literal["json", "text"], typer.Option(help="Format of log lines.")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="Least severity to log.")]


@operator_app.command("run")
def operator_run(
    settings: SettingsFile = None,
    bind: Annotated[
        str, typer.Option(help="Address for probes and metrics; without a host, all IPv4 and IPv6 addresses.")
    ] = f":{ports.PROBES}",
    log_format: LogFormat = "json",
    log_level: LogLevel = "info",
) -> None:
    """Run the operator with the pod's service account, or the current kubeconfig."""
    host, port = _address(bind, "--bind")
    _configure_logging(log_format, log_level)
    from tandem.settings import check_images, in_cluster, load_settings

    with user_errors():
        loaded = load_settings(settings)
        check_images(loaded)
        asyncio.run(_run_operator(in_cluster(loaded), host, port))


@metrics_app.command("run")
def metrics_run(
    settings: SettingsFile = None,
    bind: Annotated[
        str,
        typer.Option(help="Address for probes and the server's own metrics (HTTP); without a host, all addresses."),
    ] = f":{ports.PROBES}",
    secure_bind: Annotated[
        str, typer.Option(help="Address for the metrics APIs (HTTPS); without a host, all addresses.")
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
