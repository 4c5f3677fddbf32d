"""The playground: who may use it, where requests go, and what bounds them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tandem.client.generate.errors import GenerateError, RequestRefusedError, UnreachableError
from tandem.client.generate.figures import Chunk, Totals
from tandem.client.generate.request import Request
from tandem.metrics_server.ui import playground

from .conftest import Site, known, service

PATH = "/ui/api/services/team-a/llama/completions"
CHUNKS = [
    Chunk("def f", (1, 2, 3), accepted=2, draft_text_length=4, refused_text="g("),
    Chunk("(", (4,), finish_reason="length", totals=Totals(draft_tokens=8, accepted_draft_tokens=2, input_tokens=5)),
]


class Triton:
    """Stands for `TritonClient`. `error`: raised when it is asked; `goes_on`: waited for after each chunk."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Request]] = []
        self.error: GenerateError | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.fixed = ""
        self.shown = True
        self.streams = asyncio.Semaphore(0)
        self.closed = asyncio.Event()

    def __call__(self, url: str, max_message_bytes: int) -> "Triton":
        assert max_message_bytes == playground.MOST_MESSAGE
        self.url = url
        return self

    async def __aenter__(self) -> "Triton":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed.set()

    async def check(self) -> None:
        if self.error:
            raise self.error

    async def drafts_fixed(self) -> str:
        return self.fixed

    async def shows_refused(self) -> bool:
        return self.shown

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        self.asked.append((self.url, request))
        self.streams.release()
        for chunk in CHUNKS:
            yield chunk
            await self.goes_on.wait()


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Triton:
    made = Triton()
    monkeypatch.setattr(playground, "TritonClient", made)
    return made


def body(**changes: Any) -> bytes:
    return json.dumps({"prompt": "def", "maxTokens": 4, **changes}).encode()


async def lines(site: Site, **changes: Any) -> list[dict[str, Any]]:
    status, _, text = await site.ask(PATH, "ann", body(**changes))
    assert status == 200, text
    return [json.loads(line) for line in text.splitlines()]


async def test_tokens_come_with_their_origin(site: Site, triton: Triton) -> None:
    first, last = await lines(site, draftTokens=3)
    assert first == {"draft": "def ", "refused": "g(", "target": "f", "accepted": 2, "tokens": 3}
    assert (last["finish"], last["totals"]) == ("length", {"drafted": 8, "accepted": 2, "prompt": 5})
    ((url, request),) = triton.asked
    assert url == "llama-triton.team-a.svc:8001"
    assert (request.prompt, request.sampling.max_tokens, request.num_draft_tokens) == ("def", 4, 3)


@pytest.mark.parametrize("shown", [True, False])
async def test_refused_tokens_are_asked_for_where_the_model_knows_that(
    site: Site, triton: Triton, shown: bool
) -> None:
    triton.shown = shown
    await lines(site)
    assert [request.refused_text for _, request in triton.asked] == [shown]


async def test_it_takes_the_right_that_the_api_server_asks_for(site: Site, triton: Triton) -> None:
    site.rights.granted -= {("ann", ("create", "services/proxy", "team-a", "llama-triton"))}
    status, _, text = await site.ask(PATH, "ann", body())
    assert (status, triton.asked) == (403, [])
    assert "cannot create" in text and "services/proxy" in text and "llama-triton" in text


@pytest.mark.parametrize(
    "name", ["gone", "llama-triton.team-a.svc:80%23", "..%2f..%2f127.0.0.1:80", "169.254.169.254"]
)
async def test_requests_go_to_services_of_the_inventory_alone(site: Site, triton: Triton, name: str) -> None:
    plain = name.replace("%23", "#").replace("%2f", "/")
    site.rights.granted.add(("ann", ("create", "services/proxy", "team-a", f"{plain}-triton")))
    status, _, _ = await site.ask(f"/ui/api/services/team-a/{name}/completions", "ann", body())
    assert (status, triton.asked) == (404, [])


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (body(url="http://169.254.169.254"), 400, "an address, which no request has"),
        (body(prompt=""), 400, "no prompt"),
        (body(maxTokens=100_000), 400, "more tokens than a page needs"),
        (body(draftTokens=-1), 400, "a negative draft"),
        (b"[]", 400, "no object"),
        (b"\xff", 400, "no text"),
        (body(prompt="a" * 70_000), 413, "more than 64 KiB"),
    ],
)
async def test_bodies_that_are_refused(site: Site, triton: Triton, sent: bytes, status: int, reason: str) -> None:
    assert ((await site.ask(PATH, "ann", sent))[0], triton.asked) == (status, []), reason


async def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, triton: Triton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground, "BODY_SECONDS", 0.05)
    never = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{site.listener.port}{PATH}"
        async with session.post(url, data=nothing(), headers={"Authorization": "Bearer ann"}) as answer:
            assert answer.status == 408


async def test_streams_at_once_are_bounded(site: Site, triton: Triton) -> None:
    triton.goes_on.clear()
    held = [asyncio.create_task(site.ask(PATH, "ann", body())) for _ in range(playground.MOST_OF_A_USER)]
    async with asyncio.timeout(60):
        for _ in held:
            await triton.streams.acquire()
        assert (await site.ask(PATH, "ann", body()))[0] == 429
        triton.goes_on.set()
        assert {status for status, _, _ in await asyncio.gather(*held)} == {200}
        assert (await site.ask(PATH, "ann", body()))[0] == 200, "their places are free again"


async def test_a_completion_that_takes_too_long_is_ended(
    site: Site, triton: Triton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground, "MOST_SECONDS", 0.2)
    triton.goes_on.clear()
    async with asyncio.timeout(60):
        *_, last = await lines(site)
        assert "was ended after" in last["error"]
        await triton.closed.wait()


async def test_a_page_that_is_left_ends_its_request(site: Site, triton: Triton) -> None:
    triton.goes_on.clear()
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{site.listener.port}{PATH}"
        async with session.post(url, data=body(), headers={"Authorization": "Bearer ann"}) as answer:
            assert await answer.content.readline()
        await triton.closed.wait()  # though no token comes


async def test_the_end_of_the_process_ends_streams(site: Site, triton: Triton) -> None:
    triton.goes_on.clear()
    held = asyncio.create_task(site.ask(PATH, "ann", body()))
    async with asyncio.timeout(50):  # not the minute for which aiohttp waits
        await triton.streams.acquire()
        await site.listener.close()
        await triton.closed.wait()
        with pytest.raises(aiohttp.ClientError):
            await held


GONE = UnreachableError("no answer")
READY = {"ready_replicas": 1}
ACCESS: dict[str, Any] = {"from": [{"podSelector": {}}]}


@pytest.mark.parametrize(
    ("error", "status", "access", "part"),
    [
        (GONE, {}, None, "no server is Ready"),
        (GONE, READY, ACCESS, "serving.access.from names alone: add the metrics server's pods"),
        (GONE, READY, None, "nothing answers at llama-triton.team-a.svc:8001: look for a NetworkPolicy, or a mesh"),
        (RequestRefusedError("request refused: the prompt is too long"), READY, None, "the prompt is too long"),
        (GenerateError("odd"), READY, None, "no Triton server of Tandem's"),
    ],
)
async def test_errors_say_what_to_do(
    site: Site, triton: Triton, error: GenerateError, status: dict[str, Any], access: Any, part: str
) -> None:
    made = service(serving__access=access or {})
    site.services[:] = [known(made.model_copy(update={"status": made.status.model_copy(update=status)}))]
    triton.error = error
    (line,) = await lines(site)
    assert part in line["error"]


async def test_a_server_that_drafts_by_itself_takes_no_draft_length(site: Site, triton: Triton) -> None:
    triton.fixed = "mode LLMAPI, whose engine decides itself how many tokens to draft"
    (line,) = await lines(site, draftTokens=0)
    assert "leave the draft length to the service" in line["error"]
    assert "error" not in (await lines(site))[-1]
