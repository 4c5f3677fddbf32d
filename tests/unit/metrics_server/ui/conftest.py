"""The page over HTTP on loopback, with services, reports and rights that a test chooses."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from support.reports import report
from support.services import QUICKSTART, parse
from tandem.api.types import SpeculativeInferenceService
from tandem.http.listener import Listener
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics_server.authentication import AUDIENCE, Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.inventory import Known, Pod
from tandem.metrics_server.server import application
from tandem.metrics_server.ui.page import Page
from tandem.metrics_server.ui.playground import Playground

AT = datetime(2026, 11, 26, 8, tzinfo=UTC)
Right = tuple[str, str, str, str]
"""Verb, resource with its subresource, namespace, name; empty: all."""


def service(name: str = "llama", namespace: str = "team-a", **changes: Any) -> SpeculativeInferenceService:
    made = parse(QUICKSTART, **changes)
    return made.model_copy(update={"metadata": {**made.metadata, "name": name, "namespace": namespace}})


def pod(name: str, ready: bool = True, problem: str = "") -> Pod:
    target = ScrapeTarget(name, "team-a", name, "127.0.0.1") if ready else None
    return Pod("team-a", "llama", AT, target, name=name, revision="abc", problem=problem)


def known(made: SpeculativeInferenceService, *pods: Pod) -> Known:
    return Known(made, (), Replicas(len(pods), 0, 1), pods)


class Rights:
    """Answers reviews: the token is the user's name, and what users may do stands in `granted`."""

    def __init__(self) -> None:
        self.granted: set[tuple[str, Right]] = set()
        self.reviews: list[Right] = []

    async def review(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        if kind.kind == "TokenReview":
            known = spec["token"] in ("ann", "bob", "carl")
            return {"authenticated": known, "audiences": [AUDIENCE], "user": {"username": spec["token"]}}
        if not (asked := spec.get("resourceAttributes")):
            return {"allowed": False}
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        right = asked["verb"], resource, asked["namespace"], asked["name"]
        self.reviews.append(right)
        return {"allowed": (spec["user"], right) in self.granted}


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
        page = Page(gate, lambda: self.services, self.board, playground)
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
    made = Site(Rights(), board, services)
    made.rights.granted = all_of("ann")
    await made.start()
    yield made
    await made.listener.close()
