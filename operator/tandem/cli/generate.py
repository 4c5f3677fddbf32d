"""`tandem generate`: completions from a service, streamed and measured."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.options import WAIT_HELP, Namespace, service_names

HELP = (
    "Stream completions from a service, and show their speed and how many draft tokens were accepted.\n\n"
    "On a terminal, the prompt is dim and text from accepted draft tokens is green. tokens/s is measured from"
    " sending a request to its end. The mean accepted length counts accepted draft tokens plus one per target"
    " step."
)
EXIT_CODES = (
    "Exit codes: 0 done; 1 the service cannot be used, or refused a request; 2 wrong options; 3 with --compare,"
    " greedy tokens with and without speculation differ; 130 interrupted."
)

Name = Annotated[
    str,
    typer.Argument(help="SpeculativeInferenceService of the cluster.", autocompletion=service_names),
]
Url = Annotated[str, typer.Option(help="HOST:PORT of a Triton gRPC endpoint, instead of a service's name.")]
Wait = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help=WAIT_HELP, show_default=False),
]
Prompt = Annotated[list[str] | None, typer.Option("-p", "--prompt", help="A prompt; may be repeated.")]
Prompts = Annotated[
    Path | None,
    typer.Option(
        help=".jsonl, .jsonl.gz: one object a line with 'prompt' (HumanEval), 'text' (GenAI-Perf) or 'turns' (EAGLE:"
        " the first). Other files, and - (standard input), are one prompt."
    ),
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Maximum number of tokens to generate for each prompt.")]
NumDraftTokens = Annotated[
    int | None,
    typer.Option(
        min=0, help="Maximum number of draft tokens per step (default: the service's); 0 runs only the target."
    ),
]
Temperature = Annotated[float | None, typer.Option(min=0, help="Sampling temperature; greedy by default.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=0, help="Sample from the K most likely tokens.")]
TopP = Annotated[float | None, typer.Option("--top-p", min=0, max=1, help="Sample from this share of probability.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**64 - 1, help="Seed of the sampling.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", metavar="WORD", help="Stop at this text; may be repeated.")]
Compare = Annotated[bool, typer.Option("--compare", help="Run each prompt without the draft too, and compare.")]
Concurrency = Annotated[int, typer.Option(min=1, metavar="N", help="Prompts at a time; answers are shown in order.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per prompt instead of text.")]


def generate(
    name: Name = "",
    namespace: Namespace = None,
    url: Url = "",
    wait: Wait = 0,
    prompt: Prompt = None,
    prompts: Prompts = None,
    max_tokens: MaxTokens = 128,
    num_draft_tokens: NumDraftTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    compare: Compare = False,
    concurrency: Concurrency = 1,
    as_json: Json = False,
) -> None:
    """Run the command; exits with one of `EXIT_CODES`, or raises GenerateError."""
    _check(bool(name) != bool(url), "give either the name of a service or --url HOST:PORT")
    _check(bool(prompt or prompts), "give -p TEXT, --prompts FILE, or --prompts - for standard input")
    _check(not compare or num_draft_tokens != 0, "--compare needs speculation: leave out --num-draft-tokens 0")
    from tandem.client.generate.app import Endpoint, generate  # loads gRPC and numpy: for this command alone
    from tandem.client.generate.prompts import read_prompts
    from tandem.client.generate.request import Sampling
    from tandem.client.generate.session import CompletionPlan

    sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, tuple(stop or ()))
    plan = CompletionPlan(read_prompts(prompt or (), prompts), sampling, num_draft_tokens, compare, concurrency)
    target, no_color = Endpoint(name, namespace, url, wait), bool(os.environ.get("NO_COLOR"))
    raise typer.Exit(generate(target, plan, as_json=as_json, no_color=no_color))


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise typer.BadParameter(otherwise)
