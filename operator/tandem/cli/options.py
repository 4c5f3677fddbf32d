"""What commands share: the connection's options, which are kubectl's own, and how errors end a command."""

import asyncio
import contextlib
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandem.api import GROUP, PLURAL
from tandem.client import kubectl
from tandem.errors import TandemError

EXIT_FAILED = 1
EXIT_NOT_READY = 3
"""2 is of wrong options."""
WAIT_HELP = "Wait this long for a server that answers, and for a rollout to end."
OUTPUT_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write to standard output; typer handles a closed pipe itself, and prints nothing."""
PANEL = "Connection"
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.", rich_help_panel=PANEL)
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="Kubeconfig file (default: $KUBECONFIG).", rich_help_panel=PANEL
    ),
]
AsUser = Annotated[
    str | None, typer.Option("--as", metavar="USER", help="Impersonate this user.", rich_help_panel=PANEL)
]
AsGroup = Annotated[
    list[str] | None,
    typer.Option(
        "--as-group", metavar="GROUP", help="Impersonate this group; may be repeated.", rich_help_panel=PANEL
    ),
]
CONNECTION: Mapping[str, Any] = {"context": Context, "kubeconfig": Kubeconfig, "as_user": AsUser, "as_group": AsGroup}
"""Parameters of each command that asks a cluster; all None by default."""

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="The operator's settings file (YAML; default: the built-in settings)."),
]
OperatorSettings = Annotated[
    Path | None,
    typer.Option("--settings", help="The operator's settings file (YAML; default: read from the cluster)."),
]
ResourceFiles = Annotated[
    list[Path],
    typer.Option(
        "-f",
        "--filename",
        help="Resources (YAML or JSON), or a folder of them; - reads standard input. May be repeated.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace of the service (default: the context's).")
]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")]


def in_a_folder(file: Path | None) -> Path | None:
    """A file to write, at the end of what may take minutes. Raises BadParameter: its folder is not there."""
    if file and not file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    return file


def connection(given: Mapping[str, Any]) -> list[str]:
    """kubectl's arguments for values of `CONNECTION`, and of `namespace` where that is among them."""
    named = {"--context": "context", "--kubeconfig": "kubeconfig", "--as": "as_user", "--namespace": "namespace"}
    found = [f"{option}={given[name]}" for option, name in named.items() if given.get(name)]
    return found + [f"--as-group={group}" for group in given.get("as_group") or ()]


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the connection's options, after which its kubectl goes, and with `user_errors`."""

    @functools.wraps(command)
    def connected(**given: Any) -> None:
        options = connection({name: given.pop(name, None) for name in CONNECTION})
        with kubectl.connected(options), user_errors():
            command(**given)

    own = inspect.signature(command)
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=of) for name, of in CONNECTION.items()]
    parameters = [each.replace(kind=kind) for each in own.parameters.values()]
    connected.__signature__ = own.replace(parameters=[*parameters, *added])  # type: ignore[attr-defined]
    return connected


class Commands(TyperGroup):
    """All commands: output that cannot be written, or a file that cannot be used, ends any of them with one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, and end the process."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.filename is None and error.errno not in OUTPUT_FAILS:
                raise
            place = error.filename if error.filename is not None else "cannot write the output"
            with contextlib.suppress(OSError):
                typer.secho(f"error: {place}: {error.strerror}", fg=typer.colors.RED, err=True)
            # What is still buffered would fail again when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_FAILED)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that Tandem raises on purpose into one line and exit code 1."""
    try:
        yield
    except (TandemError, ExceptionGroup) as raised:
        error = _alone(raised)
        if isinstance(error, OSError):
            raise error from raised
        if not isinstance(error, TandemError):
            raise
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(EXIT_FAILED) from error


def _alone(raised: Exception) -> Exception:
    """What a group of one is of: a task that ended the others."""
    while isinstance(raised, ExceptionGroup) and len(raised.exceptions) == 1:
        (raised,) = raised.exceptions
    return raised


def service_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Services whose names begin so, for a shell's completion; none where the cluster does not answer."""
    options = [*connection(ctx.parent.params if ctx.parent else {}), *connection(ctx.params)]
    with kubectl.connected(options), contextlib.suppress(kubectl.ClusterError):
        listed = asyncio.run(kubectl.kubectl("get", f"{PLURAL}.{GROUP}", "--output=name", "--request-timeout=3s"))
        names = [line.rpartition("/")[2] for line in listed.splitlines()]
        return [name for name in names if name.startswith(incomplete)]
    return []


ServiceName = Annotated[
    str, typer.Argument(metavar="NAME", help="SpeculativeInferenceService.", autocompletion=service_names)
]
