"""`tandem ui`: the metrics server's page, through a port-forward."""

import asyncio
import os
from typing import NoReturn

import typer

from tandem.client import kubectl
from tandem.metrics_server.authentication import AUDIENCE


def open_page(namespace: str, service: str, port: int, account: str) -> NoReturn:
    """Print the page's address and become `kubectl port-forward`; `account`: [NAMESPACE/]NAME, empty: no token.

    Raises:
        ClusterError: kubectl is missing, finds no such Service, or makes no token for the account.
    """
    forward = kubectl.command("port-forward", "--namespace", namespace, f"service/{service}", f"{port}:443")
    asyncio.run(_find(namespace, service))
    if account:
        typer.echo(f"token of {account}: {asyncio.run(_token(account))}")
    typer.echo(
        f"open https://127.0.0.1:{port}/ui/ (the browser asks about the certificate; Ctrl-C ends it)", err=True
    )
    os.execv(forward[0], forward)


async def _find(namespace: str, service: str) -> None:
    answer = await kubectl.run(
        "get", "service", service, "--namespace", namespace, "--output=name", "--request-timeout=15s"
    )
    if answer.code:
        hint = "; -n and --service name the metrics server's" if "(NotFound)" in answer.error else ""
        raise kubectl.ClusterError(f"{kubectl.explain(answer.error)}{hint}")


async def _token(account: str) -> str:
    namespace, _, name = account.rpartition("/")
    place = ("--namespace", namespace) if namespace else ()
    return (await kubectl.kubectl("create", "token", name, *place, f"--audience={AUDIENCE}")).strip()
