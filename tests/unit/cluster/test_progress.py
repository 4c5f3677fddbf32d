"""What a pod that downloads says of its progress, in words."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from tandem import names
from tandem.cluster.progress import MOST_BYTES, describe, describe_build, progress

ROWS = [
    # phase, bytes, total, in words, why
    ("Resolving", 0, 0, "Resolving: listing the files", "it begins"),
    ("Waiting", 0, 0, "Waiting: another pod downloads the same model", "two services with one model"),
    ("Complete", 0, 0, "Complete", "it was there"),
    ("Fetching", 500_000_000, 2_000_000_000, "Fetching: 0.50 of 2.00 GB (25 %)", "it works"),
]


@pytest.mark.parametrize(("phase", "done", "total", "words", "reason"), ROWS, ids=[row[4] for row in ROWS])
def test_in_words(phase: str, done: int, total: int, words: str, reason: str) -> None:
    assert describe(json.dumps({"phase": phase, "bytes": done, "total": total}).encode()) == words, reason


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b"<html>", b'{"phase": "Fetching"}', b"\xff", b"[" * 4096])
def test_what_is_no_answer_says_nothing(answer: bytes) -> None:
    assert describe(answer) == describe_build(answer) == ""


BUILDING = {
    "phase": "Building",
    "rank": 3,
    "ranks": 8,
    "layer": 0,
    "layers": 80,
    "seconds": 845,
    "line": "[TRT] [I] ok",
}
BUILDS = [
    # what differs, in words, why
    ({}, "Building: rank 3 of 8, 14 min; the tool's log: [TRT] [I] ok", "trtllm-build names no layer"),
    (
        {"phase": "Converting", "layer": 12, "seconds": 59, "line": ""},
        "Converting: rank 3 of 8, layer 12 of 80, 59 s",
        "a conversion does",
    ),
    (
        {"phase": "Waiting", "seconds": 0},
        "Waiting: another pod builds the same engine",
        "two services with one model",
    ),
    ({"line": "a\x1b[31m\nb"}, "Building: rank 3 of 8, 14 min; the tool's log: a?[31m?b", "a line of anybody's"),
    ({"line": "x" * 5000}, "", "longer than any that we send"),
    ({"seconds": -1}, "", "no time"),
]


@pytest.mark.parametrize(("changes", "words", "reason"), BUILDS, ids=[row[2] for row in BUILDS])
def test_builds_in_words(changes: dict[str, object], words: str, reason: str) -> None:
    assert describe_build(json.dumps({**BUILDING, **changes}).encode()) == words, reason


class Pods:
    """What all pods answer, on the loopback interface of either family."""

    def __init__(self) -> None:
        self.answer = web.Response()

    async def handle(self, request: web.Request) -> web.Response:
        return self.answer if request.path == "/progress" else web.Response(text=DOWNLOAD)


DOWNLOAD = json.dumps({"phase": "Complete", "bytes": 0, "total": 0})
BUILT = json.dumps({**BUILDING, "phase": "Waiting", "seconds": 0})


@pytest.fixture
async def pods(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pods]:
    found, port = Pods(), unused_port()
    runner = web.ServerRunner(web.Server(found.handle))  # type: ignore[arg-type]  # all that it answers is a Response
    await runner.setup()
    for host in ("127.0.0.1", "::1"):
        await web.TCPSite(runner, host, port).start()
    monkeypatch.setattr("tandem.api.ports.FETCH", port)
    yield found
    await runner.cleanup()


def pod(component: str = names.FETCH, **status: Any) -> dict[str, Any]:
    running = {"phase": "Running", "podIP": "127.0.0.1", **status}
    return {"metadata": {"name": "p", "labels": {names.LABEL_COMPONENT: component}}, "status": running}


ASKED: list[tuple[str, dict[str, Any], str, dict[str, str]]] = [
    # reason, the pod, its answer, what is known of it
    ("a download", pod(), DOWNLOAD, {"p": "Complete"}),
    ("a build", pod(names.BUILD), BUILT, {"p": "Waiting: another pod builds the same engine"}),
    ("by IPv6", pod(podIP="::1"), DOWNLOAD, {"p": "Complete"}),
    ("a server has none", pod(names.SERVER), DOWNLOAD, {}),
    ("a pod of others", {"metadata": {"name": "p"}, "status": pod()["status"]}, DOWNLOAD, {}),
    ("it does not run yet", pod(phase="Pending"), DOWNLOAD, {}),
    ("it is over", pod(phase="Succeeded"), DOWNLOAD, {}),
    ("it has no address yet", pod(podIP=""), DOWNLOAD, {}),
    ("it has no status yet", {"metadata": pod()["metadata"]}, DOWNLOAD, {}),
    ("its status has no address", {**pod(), "status": {"phase": "Running"}}, DOWNLOAD, {}),
    ("longer than is read", pod(), DOWNLOAD + " " * MOST_BYTES + "{}", {"p": "Complete"}),
    ("nothing listens there: it is asked again", pod(podIP="127.0.0.2"), DOWNLOAD, {"p": ""}),
]


@pytest.mark.parametrize(("reason", "asked", "answer", "known"), ASKED, ids=[row[0] for row in ASKED])
async def test_what_is_asked_of_pods(
    reason: str, asked: dict[str, Any], answer: str, known: dict[str, str], pods: Pods
) -> None:
    pods.answer = web.Response(text=answer)
    assert await progress([asked]) == known, reason


async def test_no_redirect_is_followed(pods: Pods) -> None:
    """Anybody may run a pod: the operator follows no redirect that one answers with."""
    pods.answer = web.Response(status=302, headers={"Location": "/elsewhere"})
    assert await progress([pod()]) == {"p": ""}


async def test_each_answer_is_its_own_pods(pods: Pods) -> None:
    pods.answer = web.Response(text=DOWNLOAD)
    server, other = pod(names.SERVER), pod(podIP="127.0.0.2")
    other["metadata"] = {**other["metadata"], "name": "q"}
    assert await progress([server, other, pod()]) == {"q": "", "p": "Complete"}
