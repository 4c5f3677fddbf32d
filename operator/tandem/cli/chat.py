"""`tandem chat`: a conversation with a service."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.options import WAIT_HELP

HELP = (
    "Chat with a service over its OpenAI endpoint, through kubectl's port-forward.\n\n"
    "On a terminal it is a conversation: Ctrl-C ends an answer, Ctrl-D the chat. With a message, or one on standard"
    " input, it is one answer. Speed and accepted draft tokens stand dim below each."
)
EXIT_CODES = "Exit codes: 0 done; 1 the service cannot be used, or refused; 2 wrong options; 130 interrupted."

Name = Annotated[str, typer.Argument(help="SpeculativeInferenceService in the cluster of the current kubeconfig.")]
Text = Annotated[list[str] | None, typer.Argument(metavar="[MESSAGE]...", help="One message, instead of a chat.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Its namespace; the context's by default.")]
Url = Annotated[str, typer.Option(help="Base URL of an endpoint, such as http://host:9000/v1, instead of a service.")]
Wait = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help=WAIT_HELP, show_default=False),
]
System = Annotated[str, typer.Option(help="The system message.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens of an answer, at most; the model's limit if absent.")
]
Temperature = Annotated[float | None, typer.Option(min=0, max=2, help="Sampling temperature; 0 is greedy.")]
ApiKey = Annotated[
    str, typer.Option(envvar="TANDEM_API_KEY", show_default=False, help="A key of serving.openAI.apiKeySecret.")
]
Ca = Annotated[
    Path | None,
    typer.Option(help="Certificates (PEM) that are trusted; without it, over a port-forward, any is accepted."),
]


def chat(
    name: Name = "",
    message: Text = None,
    namespace: Namespace = None,
    url: Url = "",
    wait: Wait = 0,
    system: System = "",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    api_key: ApiKey = "",
    ca: Ca = None,
) -> None:
    """Run the command; exits with one of `EXIT_CODES`, or raises TandemError."""
    words = [*([name] if url and name else []), *(message or [])]
    if not (name or url):
        raise typer.BadParameter("give the name of a service, or --url URL")
    from tandem.client.chat.app import ChatTarget, chat  # loads aiohttp: for this command alone

    text = " ".join(words) if words else None if sys.stdin.isatty() else sys.stdin.read().strip()
    if text == "":
        raise typer.BadParameter("standard input has no message")
    given = {"max_tokens": max_tokens, "temperature": temperature}
    request = {key: value for key, value in given.items() if value is not None}
    target = ChatTarget("" if url else name, namespace, url, wait, api_key, ca)
    raise typer.Exit(chat(target, request, system, text))
