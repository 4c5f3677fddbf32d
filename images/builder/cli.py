"""The command line: ``python -m builder``."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from builder import cache, engines, inputs
from builder.build import Built, Plan
from builder.build import build as build_images
from builder.errors import BuildError

_REPOSITORY = Path(__file__).resolve().parents[2]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build Tandem's images with Docker, Podman or buildah, whichever works here.",
)
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar=f"[{'|'.join(inputs.NAMES)}]...", help=f"None: {', '.join(inputs.DEFAULT)}."),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", envvar="TANDEM_IMAGE_ENGINE", help="docker, podman or buildah."),
]
Base = Annotated[
    str | None,
    typer.Option(
        envvar="TANDEM_IMAGE_BASE",
        help="public: what the Containerfiles name, from a registry; debian: our own, from a Debian mirror."
        " Else public with Docker and Podman, debian with buildah.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Root = Annotated[Path, typer.Option(help="The repository.", file_okay=False, exists=True)]


def _plan(engine: engines.Engine, base: str | None, root: Path) -> Plan:
    if base not in (None, "public", "debian"):
        raise BuildError(f"no base is named {base!r}: write public or debian")
    own_base = engine.local_base if base is None else base == "debian"
    return Plan(root.resolve(), cache.default(), own_base)


def _print(images: list[Built], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([image.as_json() for image in images], indent=2))
        return
    for image in images:
        typer.echo(f"{image.ref}  {image.archive if image.ready else '(not built)'}")


@app.command()
def build(
    names: Names = None,
    engine: EngineName = None,
    base: Base = None,
    as_json: Json = False,
    root: Root = _REPOSITORY,
) -> None:
    """Build the images whose contents changed, as docker archives; prints their references and archives."""
    chosen = engines.choose(cache.default().root, engine)
    _print(build_images(_plan(chosen, base, root), chosen, inputs.select(names or [])), as_json)


@app.command("list")
def list_(
    names: Names = None,
    engine: EngineName = None,
    base: Base = None,
    as_json: Json = False,
    root: Root = _REPOSITORY,
) -> None:
    """Print each image's reference for the files as they are now, and its archive if it is built."""
    plan = _plan(engines.choose(cache.default().root, engine), base, root)
    _print([plan.image(image) for image in inputs.select(names or [])], as_json)


@app.command()
def clean() -> None:
    """Remove everything that `build` made: archives, wheels, the base, stores, mounts."""
    store = cache.default()
    with store.lock():
        for working in engines.working(store.root):
            working.clean()
        store.remove()


def _interrupt(signum: int, _frame: object) -> None:
    raise SystemExit(128 + signum)


def main() -> None:
    """Run the command line; an expected error is one message and exit status 1."""
    # As for Ctrl-C: programs that were started are ended, temporary folders removed.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except BuildError as error:
        typer.secho(f"Error: {error}", err=True, fg="red")
        sys.exit(1)
