"""The command line: ``python -m cluster``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster import attached, binaries, deps, state
from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.state import NodeSpec

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A Kubernetes cluster on this machine: real control plane, real or simulated nodes.",
)
Name = Annotated[str, typer.Option("--name", help="Which cluster; several can run side by side.")]
Pairs = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Repeat for more.")]


def say(text: str) -> None:
    """Print progress where it does not mix with results."""
    typer.echo(text, err=True)


def parse_pairs(pairs: list[str] | None) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dict; raises typer.BadParameter for other texts."""
    for pair in pairs or []:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs or [])


@app.command()
def up(
    nodes: Annotated[
        list[str] | None,
        typer.Option(help="real, simulated, or with a number: simulated:5. Repeat for both."),
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs that each node claims to have; no device is behind them.")] = 0,
    capacity: Pairs = None,
    label: Pairs = None,
    name: Name = "tandem",
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="TANDEM_KUBECONFIG", help="Use this existing cluster instead.")
    ] = None,
) -> None:
    """Start a cluster, add nodes to it, or repair it; returns when its nodes are Ready."""
    if kubeconfig is not None:
        for line in attached.check(kubeconfig):
            say(line)
        return
    extra = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    wanted = {**extra, **parse_pairs(capacity)}
    cluster = Cluster(name, say)
    default = [] if cluster.folder.exists() else ["real"]
    labels = parse_pairs(label)
    cluster.up([NodeSpec.parse(text, wanted, labels) for text in nodes or default])
    say(f"cluster {name} is ready; use it with: export KUBECONFIG={cluster.kubeconfig}")


@app.command()
def down(name: Name = "tandem") -> None:
    """Remove a cluster with everything that it made; nothing happens when there is none."""
    Cluster(name, say).down()


@app.command()
def status() -> None:
    """Show every cluster with its programs."""
    folder = state.clusters_dir()
    found = sorted(folder.iterdir()) if folder.exists() else []
    for path in found:
        cluster = Cluster(path.name)
        typer.echo(f"{cluster.name}  {cluster.kubeconfig}")
        for program, pid in cluster.status().items():
            typer.echo(f"  {program:<28} {pid or 'not running'}")
    if not found:
        typer.echo("no cluster; `python -m cluster up` starts one")


@app.command()
def kubeconfig(name: Name = "tandem") -> None:
    """Print the path of a cluster's kubeconfig."""
    cluster = Cluster(name)
    cluster.check_exists()
    typer.echo(cluster.kubeconfig)


@app.command()
def stop(program: str, name: Name = "tandem") -> None:
    """Stop one program of a cluster, such as kube-apiserver."""
    Cluster(name, say).stop(program)


@app.command()
def start(program: str, name: Name = "tandem") -> None:
    """Start a stopped program again: same addresses, same data."""
    Cluster(name, say).start(program)


@app.command(name="import")
def import_image(archive: Path, name: Name = "tandem") -> None:
    """Bring an image (docker-archive or OCI archive) onto the real nodes of a cluster."""
    Cluster(name, say).import_image(archive)


@app.command()
def binary(tool: str) -> None:
    """Print the path of a pinned binary (kubectl, helm, ...), built when it is missing."""
    if tool not in binaries.TOOLS:
        raise typer.BadParameter(f"choose one of: {', '.join(binaries.TOOLS)}")
    typer.echo(binaries.ensure([tool], say)[tool])


@app.command(name="deps")
def install_deps(
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is missing; status 1 if anything is.")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser", help="Those of the tests of the page alone.")] = False,
) -> None:
    """Install the Debian packages that real nodes, image builds and tests need."""
    needs = deps.missing(deps.UI_NEEDS if browser else deps.NODE_NEEDS + deps.IMAGE_NEEDS + deps.TEST_NEEDS)
    if not needs:
        say("nothing is missing")
        return
    say(f"missing:\n{deps.describe(needs)}")
    if check:
        raise typer.Exit(1)
    deps.install(needs)


def main() -> None:
    """Run the command line; an error the user can act on is one message, not a trace."""
    try:
        app(prog_name="python -m cluster")
    except ClusterError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(os.EX_TEMPFAIL)
