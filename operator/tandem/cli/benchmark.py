"""`tandem bench`: what speculation is worth on a service."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.generate import MaxTokens, Name, Prompts, Temperature, Url, Wait
from tandem.cli.options import Namespace, in_a_folder

HELP = (
    "Measure what speculation is worth on a service, with your own prompts.\n\n"
    "Streams in a closed loop, with speculation and by the target alone in turn, at each load; the speed-up is the"
    " median over pairs of windows. With a draft model in mode BLS the service itself runs the target alone"
    " (num_draft_tokens 0). Else (mode LLMAPI, and types that live in the engine) another service has to: --base"
    " makes one for as long as it takes, the same with decodingType None, on GPUs of its own; --against names one"
    " that is there.\n\n"
    "Each window begins with the first prompt again, so that both sides answer the same. An engine that reuses the KV"
    " cache (enableBlockReuse, the default) knows the prompts then: new ones take longer to their first token. And"
    " n-grams of a public pool (nGram.isPublicPool, the default) know the answers: false measures those to new"
    " prompts.\n\n"
    "A service by name is reached through kubectl port-forward, which costs both sides the same; --url from within"
    " the cluster is nearer.\n\n"
    "With --record the result is written into the ConfigMap NAME-benchmark, which goes with the service: its status"
    " then has the speed-up for as long as this revision serves."
)
EXIT_CODES = (
    "Exit codes: 0 done, whatever the verdict; 1 a service cannot be used, or refused a request; 2 wrong options;"
    " 3 no verdict: no request ended, or the other service speculates too; 130 interrupted."
)

Against = Annotated[str, typer.Option(metavar="NAME", help="Service that runs the target alone, to compare with.")]
AgainstUrl = Annotated[str, typer.Option(metavar="HOST:PORT", help="Its Triton gRPC endpoint, instead of its name.")]
Base = Annotated[
    bool,
    typer.Option("--base", help="Make NAME-base, the target alone, compare with it, and delete it."),
]
Streams = Annotated[list[int] | None, typer.Option(min=1, help="Requests at a time; may be repeated. 1, 4 and 16.")]
Seconds = Annotated[float, typer.Option(min=1, help="Length of a window.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds of load before each window.")]
Repeats = Annotated[int, typer.Option(min=1, help="Pairs of windows at each load.")]
Record = Annotated[
    bool,
    typer.Option("--record", help="Write the result into the ConfigMap NAME-benchmark, for the service's status."),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        dir_okay=False,
        writable=True,
        allow_dash=True,
        callback=in_a_folder,
        help="Write the result as JSON, too; - to standard output, in the table's place.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        dir_okay=False,
        writable=True,
        callback=in_a_folder,
        help="Draw the result, too: an SVG.",
    ),
]


def bench(
    name: Name = "",
    namespace: Namespace = None,
    url: Url = "",
    against: Against = "",
    against_url: AgainstUrl = "",
    base: Base = False,
    wait: Wait = 0,
    prompts: Prompts = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = None,
    streams: Streams = None,
    seconds: Seconds = 10,
    warm_up: WarmUp = 2,
    repeats: Repeats = 3,
    record: Record = False,
    file: Json = None,
    plot: Plot = None,
) -> None:
    """Run the command; exits with one of `EXIT_CODES`, or raises GenerateError."""
    if bool(name) == bool(url):
        raise typer.BadParameter("give either the name of a service or --url HOST:PORT")
    if against and against_url:
        raise typer.BadParameter("give --against NAME or --against-url HOST:PORT, not both")
    if base and (against or against_url or not name):
        raise typer.BadParameter("--base needs the service's name, and neither --against nor --against-url")
    if record and not name:
        raise typer.BadParameter("--record needs the service's name: the result goes into its status")
    if prompts is None:
        raise typer.BadParameter("give --prompts FILE with text like your users': acceptance depends on it")
    from tandem.client.bench.app import BenchmarkPlan, Files, bench  # loads gRPC and numpy: for this command alone
    from tandem.client.generate.app import Endpoint
    from tandem.client.generate.prompts import read_prompts
    from tandem.client.generate.request import Sampling

    other = Endpoint(against, namespace, against_url, wait) if against or against_url else None
    sampling = Sampling(max_tokens, temperature)
    plan = BenchmarkPlan(
        read_prompts((), prompts), sampling, streams or [1, 4, 16], warm_up, seconds, repeats, other, record, base
    )
    target, no_color = Endpoint(name, namespace, url, wait), bool(os.environ.get("NO_COLOR"))
    raise typer.Exit(bench(target, plan, Files(file, plot), no_color=no_color))
