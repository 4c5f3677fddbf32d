"""`tandem conformance`: whether a service does what Tandem promises, on the user's own cluster."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.generate import Name, Url, Wait
from tandem.cli.options import Namespace, in_a_folder

HELP = (
    "Try a service on your own cluster and image, and write a report that can be sent back.\n\n"
    "Greedy text with speculation against the target alone at 1, 4 and 16 rows at once, samples with a seed, a mix,"
    " long contexts, clients that leave, stop words; and whether pods and counters of faults stay as they were. The"
    " service should have no other clients meanwhile.\n\n"
    "With a draft model in mode BLS the service itself runs the target alone. Else give --against a service of"
    " decodingType None that is otherwise the same; without it only equality between one row and many is tried.\n\n"
    "The report holds versions, hardware, outcomes and our own prompts, and no names of yours:"
    " docs/how-to/conformance.md."
)
EXIT_CODES = (
    "Exit codes: 0 nothing broke; 1 a case broke, or the service cannot be used; 2 wrong options; 130 interrupted."
)

Against = Annotated[str, typer.Option(metavar="NAME", help="Service that runs the target alone, to compare with.")]
AgainstUrl = Annotated[str, typer.Option(metavar="HOST:PORT", help="Its Triton gRPC endpoint, instead of its name.")]
Minutes = Annotated[float, typer.Option(min=0, help="Repeat the mix for so long after the cases, such as 60.")]
Cases = Annotated[
    list[str] | None, typer.Option("--case", help="Run only this case, by its name in the report; may be repeated.")
]
MaxTokens = Annotated[int, typer.Option(min=4, help="Tokens of each completion, at most.")]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", callback=in_a_folder, help="JSON for sending back; - for standard output."
    ),
]


def conformance(
    name: Name = "",
    namespace: Namespace = None,
    url: Url = "",
    against: Against = "",
    against_url: AgainstUrl = "",
    wait: Wait = 0,
    minutes: Minutes = 0,
    max_tokens: MaxTokens = 64,
    case: Cases = None,
    report: ReportFile = None,
) -> None:
    """Run the command; exits with one of `EXIT_CODES`, or raises TandemError."""
    if bool(name) == bool(url):
        raise typer.BadParameter("give either the name of a service or --url HOST:PORT")
    if against and against_url:
        raise typer.BadParameter("give --against NAME or --against-url HOST:PORT, not both")
    from tandem.client.conformance.app import ConformancePlan, conformance  # loads gRPC and numpy
    from tandem.client.conformance.cases import CASES
    from tandem.client.generate.app import Endpoint

    other = Endpoint(against, namespace, against_url, wait) if against or against_url else None
    if unknown := [each for each in case or () if each not in CASES]:
        raise typer.BadParameter(f"--case {unknown[0]}: give one of {', '.join(CASES)}")
    plan = ConformancePlan(max_tokens, minutes, report, other, tuple(case or CASES))
    target, no_color = Endpoint(name, namespace, url, wait), bool(os.environ.get("NO_COLOR"))
    raise typer.Exit(conformance(target, plan, no_color=no_color))
