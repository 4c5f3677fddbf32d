"""The endpoint over HTTP, with a Triton that answers what a test says."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from starlette.requests import Request
from starlette.testclient import TestClient

from support.serving.openai import FakeTriton, lifespan, tokenizer_folder
from tandem_serving.openai import bodies, server
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.api import ChatRequest, parse
from tandem_serving.openai.bodies import Bodies
from tandem_serving.openai.errors import ApiError
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.triton import Chunk

FIGURES = {"input_tokens": 5, "output_tokens": 3, "draft_tokens": 4, "accepted_draft_tokens": 1}
ANSWER = ((0, Chunk("He", [], [], "", {})), (0, Chunk("llo", [], [], "length", FIGURES)))
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


def endpoint(triton: FakeTriton, folder: Path, keys: Path | None = None, most: int = 1000) -> Endpoint:
    return Endpoint("m", triton, ChatModel(folder), ApiKeys(keys), most, Metrics(0))


@contextlib.contextmanager
def client(triton: FakeTriton, folder: Path, keys: Path | None = None, most: int = 1000) -> Iterator[TestClient]:
    app = application(endpoint(triton, folder, keys, most), lifespan)
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_chat_s_prompt_is_its_template_s_tokens_without_others(tmp_path: Path) -> None:
    """The template writes the special tokens: `<|endoftext|>` is one here."""
    folder = tokenizer_folder(
        tmp_path, "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{{ eos_token }}"
    )
    triton = FakeTriton(*ANSWER)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]
    with client(triton, folder) as http:
        assert http.post("/v1/chat/completions", json={**CHAT, "messages": messages}).status_code == 200
    [([tensors], _)] = triton.calls
    model = ChatModel(folder)
    assert model.decode(tensors["input_ids"][0].tolist()) == "systemxusera\nb", "parts are lines"
    assert tensors["input_ids"][0, -1] == 0, "the end token, as the template wrote it"


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}END{% endfor %}"


@pytest.mark.parametrize(
    ("template", "sent", "stops", "reason"),
    [
        (TURNS.replace("END", "<|im_end|>\n"), {}, [b"<|im_end|>"], "no file names it"),
        (TURNS.replace("END", "<|im_end|>"), {"stop": ["x"]}, [b"x", b"<|im_end|>"], "beside the client's"),
        (TURNS.replace("END", "<|im_end|>"), {"ignore_eos": True}, [], "nothing is to end it"),
        (TURNS.replace("END", "<|endoftext|>"), {}, [], "the models know it"),
        (TURNS.replace("END", " over"), {}, [], "words are no token"),
        ("{{ messages[7].role }}", {}, [], "the template takes no such chat"),
    ],
)
def test_a_turn_of_a_chat_ends_where_its_template_ends_one(
    tmp_path: Path, template: str, sent: dict[str, Any], stops: list[bytes], reason: str
) -> None:
    folder = tokenizer_folder(tmp_path, template)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    chat = {**CHAT, "messages": [{"role": "user", "content": "x"}] * 8, **sent}
    with client(triton := FakeTriton(*ANSWER), folder) as http:
        assert http.post("/v1/chat/completions", json=chat).status_code == 200
    [([tensors], _)] = triton.calls
    found = tensors.get("stop_words")
    assert ([] if found is None else found.reshape(-1).tolist()) == stops, reason


def test_a_stream_is_events_that_end_with_done(tmp_path: Path) -> None:
    with client(triton := FakeTriton(*ANSWER), tokenizer_folder(tmp_path)) as http:
        reply = http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(reply.text)
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == ["He", "llo"]
    assert done == "[DONE]"
    assert triton.ended == 1


def test_an_error_before_the_first_chunk_is_the_answer_s_status(tmp_path: Path) -> None:
    for stream in (False, True):
        with client(FakeTriton(ApiError(503, "no room")), tokenizer_folder(tmp_path)) as http:
            reply = http.post("/v1/chat/completions", json={**CHAT, "stream": stream})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"] == {"message": "no room", "type": "server_error", "param": None, "code": None}


def test_a_later_error_is_the_last_event(tmp_path: Path) -> None:
    with client(FakeTriton(ANSWER[0], ApiError(500, "broken")), tokenizer_folder(tmp_path)) as http:
        first, last = events(http.post("/v1/chat/completions", json={**CHAT, "stream": True}).text)
    assert first["choices"][0]["delta"]["content"] == "He"
    assert last["error"]["message"] == "broken"


def test_a_fault_of_ours_says_nothing_of_itself(tmp_path: Path) -> None:
    with client(FakeTriton(RuntimeError("secret")), tokenizer_folder(tmp_path)) as http:
        reply = http.post("/v1/chat/completions", json=CHAT)
    assert reply.status_code == 500
    assert "secret" not in reply.text


def test_chat_needs_a_template_and_completions_do_not(tmp_path: Path) -> None:
    with client(FakeTriton(*ANSWER), tokenizer_folder(tmp_path, template=None)) as http:
        refused = http.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_chat_template")
        reply = http.post("/v1/completions", json={"model": "m", "prompt": "x"})
        assert reply.json()["choices"][0]["text"] == "Hello"


ROUTES = [
    ("GET", "/v1/models", None, 200),
    ("GET", "/v1/models/m", None, 200),
    ("GET", "/v1/models/org/other", None, 404),
    ("POST", "/v1/embeddings", {"model": "m", "input": "x"}, 404),
    ("GET", "/v1/chat/completions", None, 405),
    ("POST", "/v1/responses", {}, 404),
    ("POST", "/v1/completions", {"model": "other", "prompt": "x"}, 404),
    ("POST", "/v1/completions", {"model": "m", "prompt": "x" * 1000}, 413),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ROUTES, ids=[f"{r[0]} {r[1]} {r[3]}" for r in ROUTES])
def test_other_answers_are_openai_s_json(
    tmp_path: Path, method: str, path: str, body: dict[str, str] | None, status: int
) -> None:
    with client(FakeTriton(*ANSWER), tmp_path) as http:
        reply = http.request(method, path, json=body)
    assert reply.status_code == status
    assert ("error" in reply.json()) is (status != 200)


def test_every_route_but_those_of_machines_asks_for_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    with client(triton := FakeTriton(*ANSWER), tokenizer_folder(tmp_path), tmp_path) as http:
        for method, path, body, _ in ROUTES:
            if path != "/v1/responses" and not (method == "GET" and path.endswith("completions")):
                reply = http.request(method, path, json=body, headers={"Authorization": "Bearer wrong"})
                assert reply.status_code == 401, path
        assert not triton.calls
        assert {http.get(path).status_code for path in ("/health", "/live", "/metrics")} == {200}
        assert http.post("/v1/completions", json={"model": "m", "prompt": "x"}, headers=KEY).status_code == 200


KEY = {"Authorization": "Bearer secret"}


def test_health_is_triton_s_and_live_the_endpoint_s_own(tmp_path: Path) -> None:
    with client(FakeTriton(), tmp_path) as http:
        assert (http.get("/health").status_code, http.get("/live").status_code) == (503, 200)


SCOPE = {
    **{"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b""},
    "headers": [(b"content-type", b"application/json")],
}


class Silent(FakeTriton):
    """Never answers."""

    async def generate(self, requests: Any, outputs: Any) -> Any:
        """Wait to be ended."""
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.ended += 1


async def test_a_client_that_leaves_ends_the_request(tmp_path: Path) -> None:
    for stream in (False, True):
        triton, sent = Silent(), list[Any]()
        body = json.dumps({"model": "m", "prompt": "x", "stream": stream}).encode()
        messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

        async def receive(messages: Iterator[Any] = messages) -> Any:
            await asyncio.sleep(0.01)
            return next(messages)

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        app = application(endpoint(triton, tmp_path), lifespan)
        await asyncio.wait_for(app(SCOPE, receive, send), 60)
        assert triton.ended == 1


NO_JSON = [
    # headers, the status, what the answer says
    ({"Content-Type": "text/plain"}, 415, "not 'text/plain'"),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "send the header Content-Type: application/json"),
    ({}, 415, "there is none"),
    ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "'gzip' is not supported"),
    ({"Content-Type": "application/json", "Content-Length": "1001"}, 413, "more than 1000 bytes"),
    ({"Content-Type": "application/json", "Content-Length": "9" * 30}, 413, "more than 1000 bytes"),
    ({"Content-Type": "Application/JSON; charset=utf-8", "Content-Length": "1000"}, 400, "no JSON"),
]


@pytest.mark.parametrize(("headers", "status", "says"), NO_JSON, ids=[row[2] for row in NO_JSON])
async def test_headers_are_checked_before_the_body_is_read(
    tmp_path: Path, headers: dict[str, str], status: int, says: str
) -> None:
    """A browser sends the first three to any server that it reaches, for any page."""
    sent, read = list[Any](), list[Any]()

    async def receive() -> Any:
        read.append({"type": "http.request", "body": b"x"})
        return read[-1]

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await application(endpoint(FakeTriton(), tmp_path), lifespan)({**SCOPE, "headers": given}, receive, send)
    message = json.loads(sent[1]["body"])["error"]["message"]
    assert (sent[0]["status"], says in message, bool(read)) == (status, True, status == 400)


async def test_few_large_bodies_come_at_once_and_small_ones_pass_them() -> None:
    few, may_end = Bodies(1 << 20), asyncio.Event()

    def request(size: int) -> Request:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"x" * size}

        return Request(SCOPE, receive)

    async def hold(size: int, come: list[int]) -> None:
        async with few.received(request(size)) as body:
            come.append(len(body))
            await may_end.wait()

    come = list[int]()
    holding = [asyncio.create_task(hold(100_000, come)) for _ in range(6)]
    await asyncio.sleep(0.05)
    small = asyncio.create_task(hold(5000, come))
    await asyncio.sleep(0.05)
    assert come == [100_000] * 4 + [5000]
    may_end.set()
    await asyncio.gather(*holding, small)
    assert come == [100_000] * 4 + [5000] + [100_000] * 2


async def test_more_requests_than_can_be_answered_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_REQUESTS", 0)
    with client(FakeTriton(*ANSWER), tokenizer_folder(tmp_path)) as http:
        for stream in (False, True):
            reply = http.post("/v1/chat/completions", json={**CHAT, "stream": stream})
            assert (reply.status_code, "being answered" in reply.text) == (503, True)
        assert http.get("/live").status_code == 200


HALF = json.dumps({"a": "x"}).replace("x", "\\ud800")
ARGUMENTS = [HALF, '{"a":' * 5000 + "1" + "}" * 5000, "[" * 5000, "x", "[1]"]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=[each[:10] for each in ARGUMENTS])
def test_arguments_that_cannot_be_read_are_the_client_s_fault(tmp_path: Path, arguments: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    folder = tokenizer_folder(tmp_path, "{{ messages[0].tool_calls | tojson }}")
    with client(FakeTriton(*ANSWER), folder, most=100_000) as http:
        chat = {**CHAT, "messages": [{"role": "assistant", "tool_calls": [call]}]}
        reply = http.post("/v1/chat/completions", json=chat)
    assert (reply.status_code, reply.json()["error"]["param"]) == (
        400,
        "messages[0].tool_calls[0].function.arguments",
    )


def test_a_chat_that_is_too_long_is_not_tokenized_to_its_end(tmp_path: Path) -> None:
    model = ChatModel(tokenizer_folder(tmp_path))
    request = parse(
        ChatRequest, json.dumps({**CHAT, "messages": [{"role": "user", "content": "a b " * 50_000}]}).encode()
    )
    with pytest.raises(ApiError, match="maximum context length is 2048 tokens") as refused:
        model.encode_chat(request, most_tokens=2048)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert len(model.encode_chat(request, most_tokens=200_000)) > 99_000


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    sent = list[Any]()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    app = application(endpoint(FakeTriton(), tmp_path), lifespan)
    await asyncio.wait_for(app(SCOPE, receive, send), 60)
    assert sent[0]["status"] == 408
