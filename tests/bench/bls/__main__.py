"""The command."""

import dataclasses
from typing import Annotated

import typer
from rich.console import Console

from bench.bls.client import Load
from bench.bls.in_flight import Pair
from bench.bls.measure import Setup, serve

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console()


@app.command()
def point(
    streams: Annotated[int, typer.Option(help="requests at once")] = 1,
    seconds: Annotated[float, typer.Option(help="the measured window")] = 6.0,
    draft_len: Annotated[int, typer.Option(help="num_draft_tokens of the requests; -1: left out")] = 4,
    acceptance: Annotated[float, typer.Option()] = 0.8,
) -> None:
    """Measure one point and print all of it."""
    with serve(Setup(Pair(), (acceptance,))) as bench:
        load = Load(streams, seconds, draft_len=None if draft_len < 0 else draft_len)
        measured = bench.run(load)
    console.print(f"{measured.speed:.0f} tokens/s", dataclasses.asdict(measured))


@app.callback()
def main() -> None:
    """What the speculative BLS makes of two engines."""


if __name__ == "__main__":
    app()
