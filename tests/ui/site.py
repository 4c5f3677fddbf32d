"""The metrics server's page, as `tandem metrics run` wires it, on loopback with TLS.

Pods are read and prompts answered by a real Triton server. Services, and what the API server answers to reviews, are
those of a test.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from support.rights import Right, Rights
from support.services import parse
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.client.generate.client import TritonClient
from tandem.client.generate.request import Request, Sampling
from tandem.http.listener import Listener
from tandem.metrics.telemetry.figures import Replicas
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics_server.authentication import Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.board import Board
from tandem.metrics_server.certificates import renewed, utc_now
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.inventory import Known, Pod
from tandem.metrics_server.loop import Loop
from tandem.metrics_server.server import application
from tandem.metrics_server.ui.page import UiPage
from tandem.metrics_server.ui.playground import Playground
from tandem.settings import MetricsServerSettings

FAST = MetricsServerSettings(interval_seconds=1, window_seconds=8)
SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: quickstart, namespace: default, uid: uid-1, generation: 1}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 8}
  autoscaling: {maxReplicas: 3}
"""
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
KIND = "speculativeinferenceservices"
TOKENS: dict[str, set[Right]] = {
    "ann": {("list", KIND, "", ""), ("get", KIND, "default", "quickstart"), ("get", KIND, "team-a", "llama-70b")}
    | {("get", KIND, "team-b", "code-draft")}
    | {("list", "pods", "default", ""), ("list", "pods", "team-a", "")}
    | {("create", "services/proxy", "default", "quickstart-triton")},
    "bob": {("list", KIND, "team-b", "")},
}
"""Tokens, each its user's name, and what they may do."""


def ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def service(name: str, namespace: str, status: dict[str, Any], **spec: Any) -> SpeculativeInferenceService:
    made = parse(SERVICE, **spec)
    metadata = {**made.metadata, "name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    return made.model_copy(update={"metadata": metadata, "status": ServiceStatus.model_validate(status)})


def condition(kind: str, status: str, reason: str, message: str, minutes: float = 60) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes)}


ANSWERS = condition("Ready", "True", "ServersAnswer", "1 of 1 servers answer")
NO_GPU = "pod llama-70b-server-6d9 cannot be scheduled: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu"
LLMAPI = {"runtime__mode": "LLMAPI", "runtime__profile": "trtllm-26.07"}
STATUSES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    # name, namespace, status, spec
    (
        *("quickstart", "default"),
        {
            "readyReplicas": 1,
            "url": "http://quickstart-triton.default.svc:8000",
            "openAIURL": "http://quickstart-triton.default.svc:9000/v1",
            "currentRevision": "5c1f9d2e",
            "conditions": [
                ANSWERS,
                condition("SpecAccepted", "True", "Accepted", "profile reference runs it", 61),
                condition("ModelsReady", "True", "ModelsReady", "target and draft are there", 61),
                condition("PairCompatible", "True", "PairCompatible", "draft and target have the same tokens", 61),
                condition("Available", "True", "ServersAnswer", "1 server answers"),
                condition("ScalingActive", "True", "ValidMetricFound", "the autoscaler reads the metric"),
            ],
        },
        {},
    ),
    (
        *("llama-70b", "team-a"),
        {
            "conditions": [
                condition("Ready", "False", "PodUnschedulable", NO_GPU, 12),
                condition("Reconciling", "True", "PodUnschedulable", NO_GPU, 12),
                condition("PodsHealthy", "False", "PodUnschedulable", NO_GPU, 12),
            ]
        },
        LLMAPI,
    ),
    (
        *("code-draft", "team-b"),
        {"conditions": [condition("Ready", "True", "ScaledToZero", MARKUP, 300)]},
        {"autoscaling": None, "replicas": 0},
    ),
]


@dataclass
class Site:
    """The page at `url`; a thread of its own runs it."""

    triton: str
    """HOST:PORT of Triton's gRPC."""
    metrics_port: int
    authority: str
    """Of the API server's client certificates, PEM: clients may show one, and browsers have none."""
    url: str = ""
    board: Board = field(default_factory=lambda: Board(keep_seconds=30))
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        rights = Rights(*TOKENS)
        rights.granted = {(user, right) for user, held in TOKENS.items() for right in held}
        gate = Gate(Authenticator(rights), Authorizer(rights))
        self._playground = Playground(gate, self.known, address=lambda _: self.triton)
        self._app = application(self.board, gate, UiPage(gate, self.known, self.board, self._playground))
        certificate = renewed(None, ["localhost"], utc_now())
        assert certificate
        self._tls = certificate.context(self.authority)
        self._listener = Listener(self._app, "127.0.0.1", 0)
        self.call(self._listener.listen(self._tls))
        self.url = f"https://127.0.0.1:{self._listener.port}/ui/"
        self._rounds = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_rounds()
        self.call(self._listener.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work` in the site's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def known(self) -> list[Known]:
        """The services and their pods."""
        return [self._one(*status) for status in STATUSES]

    def _one(self, name: str, namespace: str, status: dict[str, Any], spec: dict[str, Any]) -> Known:
        made, born = service(name, namespace, status, **spec), datetime.now(UTC) - timedelta(minutes=62)
        if not status.get("readyReplicas"):
            waits = () if status["conditions"][0]["status"] == "True" else (f"{name}-server-6d9",)
            pods = tuple(Pod(namespace, name, born, None, name=pod, problem=NO_GPU) for pod in waits)
            return Known(made, (), Replicas(0, len(pods), made.spec.replicas), pods)
        pod = f"{name}-server-7f4b"
        target = ScrapeTarget(pod, namespace, pod, "127.0.0.1", self.metrics_port, revision="5c1f9d2e")
        pods = (Pod(namespace, name, born, target, 40.0, name=pod, revision="5c1f9d2e"),)
        return Known(made, (target,), Replicas(1, 0, 1, 40.0), pods)

    async def _read(self) -> None:
        async with Scraper(ScrapeLimits(spread_seconds=0)) as source:
            await Loop(self, source, self.board, FAST).run()

    def stall(self) -> None:
        """From now on completions do not go on after their first token."""

        async def lines(*_: object) -> AsyncGenerator[dict[str, Any], None]:
            yield {"draft": "", "target": "x", "accepted": 0, "tokens": 1}
            await asyncio.Event().wait()

        setattr(self._playground, "_lines", lines)  # noqa: B010

    @property
    def completions(self) -> int:
        """Completions that run."""
        return len(self._playground._running)

    def stop_rounds(self) -> None:
        """Read no more pods: figures grow old."""
        self._rounds.cancel()

    def close(self) -> int:
        """Go away; the port, to come back at."""
        port = self._listener.port
        self.call(self._listener.close())
        return port

    def reopen(self, port: int) -> None:
        """Come back."""
        self._listener = Listener(self._app, "127.0.0.1", port)
        self.call(self._listener.listen(self._tls))

    def complete(self, prompt: str, tokens: int, drafts: int | None) -> str:
        """What Triton itself answers."""

        async def read() -> str:
            async with TritonClient(self.triton) as client:
                request = Request(prompt, Sampling(tokens), drafts)
                return "".join([chunk.text async for chunk in client.stream(request)])

        return str(self.call(read()))


class Load:
    """Streams that keep Triton busy, so that there are figures."""

    def __init__(self, site: Site, prompts: list[str]) -> None:
        self._site, self._prompts = site, prompts

    def __enter__(self) -> Self:
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._site._loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        async with TritonClient(self._site.triton) as client, asyncio.TaskGroup() as group:
            for prompt in self._prompts:
                group.create_task(self._again(client, prompt))

    async def _again(self, client: TritonClient, prompt: str) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                async for _ in client.stream(Request(prompt, Sampling(64))):
                    pass
