"""`tandem bench`: what speculation is worth on a service."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.generate import MaxTokens, Name, Prompts, Temperature, Url, Wait
from tandem.cli.options import Namespace, in_a_folder

HELP = (
    "Measure what speculation gains on a service, with your own prompts.\n\n"
    "The command streams requests in a closed loop at each load, in turn with and without speculation. The"
    " speed-up is the median over pairs of windows. With a draft model in mode BLS, the service itself can run"
    " only its target (num_draft_tokens 0). In mode LLMAPI, and where drafts come from the engine, you need a"
    " second service: --base creates one with decodingType None for the measurement, on GPUs of its own; --against"
    " names an existing one.\n\n"
    "Each window starts with the first prompt again, so both sides answer the same prompts. If the engine reuses"
    " its KV cache (enableBlockReuse, the default), it has seen them before: the first token of a new prompt takes"
    " longer. If n-grams come from a public pool (nGram.isPublicPool, the default), it has seen the answers too:"
    " set it to false to measure new prompts.\n\n"
    "A service given by name is reached through kubectl port-forward, which slows both sides equally. Inside the"
    " cluster, use --url.\n\n"
    "--record writes the result to the ConfigMap NAME-benchmark, which is deleted with the service. The service's"
    " status shows this speed-up as long as the revision serves."
)
EXIT_CODES = (
    "Exit codes: 0 done, whatever the verdict; 1 a service cannot be used, or refused a request; 2 wrong options;"
    " 3 no verdict: no request completed, or the other service speculates too; 130 interrupted."
)

Against = Annotated[str, typer.Option(metavar="NAME", help="Service without a draft to compare with.")]
AgainstUrl = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Triton gRPC endpoint of that service, instead of its name.")
]
Base = Annotated[
    bool,
    typer.Option(
        "--base", help="Create NAME-base, the same service without a draft, compare with it, and delete it."
    ),
]
Streams = Annotated[
    list[int] | None, typer.Option(min=1, help="Requests at a time; may be repeated (default: 1, 4 and 16).")
]
Seconds = Annotated[float, typer.Option(min=1, help="Length of a window, in seconds.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds of load before each window.")]
Repeats = Annotated[int, typer.Option(min=1, help="Pairs of windows at each load.")]
Record = Annotated[
    bool,
    typer.Option(
        "--record", help="Write the result to the ConfigMap NAME-benchmark, from which the service's status takes it."
    ),
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
        help="Write the result as JSON as well; - writes it to standard output instead of the table.",
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
        help="Draw the result as SVG as well.",
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
