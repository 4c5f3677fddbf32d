"""The command line: ``python -m release``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import tandem
from builder import build, cache, engines, inputs
from builder.errors import BuildError
from release import bases, plugin, signature, tools
from release.make import REGISTRY, ROOT, Order, make, source
from release.publish import publish as push

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Make a release of Tandem in build/release/VERSION, and publish it.",
)
FOLDER = ROOT / "build" / "release"
Version = Annotated[str, typer.Argument(help="The version; that of operator/tandem/__init__.py.")]


def _words(text: str) -> list[str]:
    return text.split()


@app.command("make")
def make_(
    version: Version,
    registry: Annotated[str, typer.Option(help="Host and path where it will be published.")] = REGISTRY,
    images: Annotated[str, typer.Option(help="Names of images, by spaces.")] = " ".join(inputs.DEFAULT),
    join: Annotated[str, typer.Option(help="Folders of this release, made for other architectures.")] = "",
    plugins: Annotated[str, typer.Option(help="Platforms of the kubectl plugin.")] = " ".join(plugin.PLATFORMS),
    downloads: Annotated[str, typer.Option(help="URL of the folder where the plugin's archives will be.")] = "",
    key: Annotated[Path | None, typer.Option(help="Private key (PEM, P-256) that signs the checksums.")] = None,
    unpinned: Annotated[
        bool, typer.Option("--unpinned", help="Take base images that have a tag and no digest.")
    ] = False,
) -> None:
    """Build what changed of the images and write the release; the checkout must be a clean commit."""
    if version != tandem.__version__:
        raise BuildError(
            f"the checkout is of version {tandem.__version__}, not {version}: set it in operator/tandem/__init__.py,"
            " run `make generate goldens`, and commit, so that every part of the commit has it"
        )
    private = signature.load(key, os.environ.get("KEY_PASSWORD")) if key else None
    made_from = source()
    order = Order(version, registry.rstrip("/"), [Path(p) for p in _words(join)], _words(plugins), downloads, private)
    engine = engines.choose(cache.default().root, os.environ.get("TANDEM_IMAGE_ENGINE"))
    selected = inputs.select(_words(images))
    if not (engine.local_base or unpinned):
        bases.check(ROOT, selected)
    plan = build.Plan(ROOT, cache.default(), engine.local_base)
    built = build.build(plan, engine, selected)
    make(order, {image.name: image.archive for image in built}, made_from, FOLDER / version)
    typer.echo(FOLDER / version)


@app.command("bases")
def bases_() -> None:
    """Write the digests of the base images' tags, as their registries have them now, into the Containerfiles."""
    for ref in bases.pin(ROOT, inputs.select(list(inputs.NAMES)), lambda tag: tools.crane("digest", tag).strip()):
        typer.echo(ref)


@app.command()
def publish(version: Version) -> None:
    """Push images and chart of a release that was made."""
    chart = push(FOLDER / version)
    typer.echo(f"helm install tandem {chart} --version {version} --namespace tandem-system --create-namespace")


def main() -> None:
    """Run the command line; an expected error is one message and exit status 1."""
    try:
        app()
    except BuildError as error:
        typer.secho(f"Error: {error}", err=True, fg="red")
        sys.exit(1)
