"""The page over HTTP on loopback, with services, reports and rights that a test chooses."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from support.reports import report
from support.rights import Right, Rights
from support.services import QUICKSTART, parse
from tandem.api.types import SpeculativeInferenceService
from tandem.http.listener import Listener
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics_server.authentication import Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.inventory import Known, Pod
from tandem.metrics_server.server import application
from tandem.metrics_server.ui.page import UiPage
from tandem.metrics_server.ui.playground import Playground

AT = datetime(2026, 11, 26, 8, tzinfo=UTC)


def service(name: str = "llama", namespace: str = "team-a", **changes: Any) -> SpeculativeInferenceService:
    made = parse(QUICKSTART, **changes)
    return made.model_copy(update={"metadata": {**made.metadata, "name": name, "namespace": namespace}})


def pod(name: str, ready: bool = True, problem: str = "") -> Pod:
    target = ScrapeTarget(name, "team-a", name, "127.0.0.1") if ready else None
    return Pod("team-a", "llama", AT, target, name=name, revision="abc", problem=problem)


def known(made: SpeculativeInferenceService, *pods: Pod) -> Known:
    return Known(made, (), Replicas(len(pods), 0, 1), pods)


@dataclass
class Site:
    """The page, and a client of it."""

    rights: Rights
    board: Board
    services: list[Known]
    playground: bool = True
    listener: Listener = field(init=False)

    async def start(self) -> None:
        gate = Gate(Authenticator(self.rights), Authorizer(self.rights))
        playground = Playground(gate, lambda: self.services) if self.playground else None
        page = UiPage(gate, lambda: self.services, self.board, playground)
        self.listener = Listener(application(self.board, gate, page), "127.0.0.1", 0)
        await self.listener.listen()

    async def ask(self, path: str, user: str = "", data: Any = None) -> tuple[int, dict[str, str], str]:
        """Status, headers and body; `data`: posted."""
        headers = {"Authorization": f"Bearer {user}"} if user else {}
        url = f"http://127.0.0.1:{self.listener.port}{path}"
        asked = {"headers": headers, "data": data, "allow_redirects": False}
        async with (
            aiohttp.ClientSession() as session,
            session.request("GET" if data is None else "POST", url, **asked) as answer,
        ):
            return answer.status, dict(answer.headers), await answer.text()


def all_of(user: str) -> set[tuple[str, Right]]:
    return {
        (user, ("list", "speculativeinferenceservices", "", "")),
        (user, ("get", "speculativeinferenceservices", "team-a", "llama")),
        (user, ("list", "pods", "team-a", "")),
        (user, ("create", "services/proxy", "team-a", "llama-triton")),
    }


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    board = Board(120)
    board.post([report()])
    services = [
        known(service(), pod("llama-0"), pod("llama-1", ready=False, problem="no node has a GPU")),
        known(service("other", "team-b")),
    ]
    made = Site(Rights("ann", "bob", "carl"), board, services)
    made.rights.granted = all_of("ann")
    await made.start()
    yield made
    await made.listener.close()
