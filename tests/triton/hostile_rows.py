"""Bodies and patterns of connections that the servers of a pod must withstand, and what they must say."""

import json
from typing import Any

from triton.hostile import JSON, Row, at_once, opens, posts, request, sends
from triton.openai_endpoint import NAME

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20
DEEP = 100_000
FORM = "application/x-www-form-urlencoded"


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2, **more}


def _message(**more: Any) -> dict[str, Any]:
    return _chat(messages=[{"role": "user", "content": "x", **more}])


def _called(arguments: str) -> dict[str, Any]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return _chat(messages=[{"role": "assistant", "tool_calls": [call]}])


def _filled(form: str, item: str, size: int) -> bytes:
    """A list of one item in a body of at most that size."""
    head, _, tail = form.partition("…")
    rest = size - len(head) - len(tail)
    return (head + ",".join([item] * (rest // (len(item) + 1))) + tail).encode()


_PROMPT = f'{{"model": "{NAME}", "prompt": […]}}'
_MESSAGES = f'{{"model": "{NAME}", "messages": […]}}'
_CONTENT = f'{{"model": "{NAME}", "messages": [{{"role": "user", "content": […]}}]}}'
_HEAD = request(CHAT, b"", JSON | {"Content-Length": "1000000"})
_TEXT = "a b c d " * (MIB // 2 - 100)

BODIES = [  # of the OpenAI endpoint, sent in one go
    Row("1 MiB of objects", posts(COMPLETION, _filled(_PROMPT, "{}", MIB)), (413,), "JSON"),
    Row("4 MiB of objects", posts(COMPLETION, _filled(_PROMPT, "{}", 4 * MIB)), (413,), "JSON"),
    Row("objects up to the limit", posts(COMPLETION, _filled(_PROMPT, "{}", 48_000)), (400,), "prompt: send a text"),
    Row("numbers as messages", posts(CHAT, _filled(_MESSAGES, "1", 500_000)), (400,), "messages"),
    Row("4 MiB of messages", posts(CHAT, _filled(_MESSAGES, "1", 4 * MIB)), (413,), "more than 262144 JSON values"),
    Row("numbers as content", posts(CHAT, _filled(_CONTENT, "1", 500_000)), (400,), "messages[0].content"),
    Row("4 MiB of content", posts(CHAT, _filled(_CONTENT, "1", 4 * MIB)), (413,), "JSON values"),
    Row("tokens up to the limit", posts(COMPLETION, _filled(_PROMPT, "1", 520_000)), (400,), "2048"),
    Row("prompts", posts(COMPLETION, _filled(_PROMPT, "[1]", 500_000)), (400,), "more than 1024 sequences"),
    Row("texts", posts(COMPLETION, _filled(_PROMPT, '"a"', 4 * MIB)), (413,), "JSON values"),
    Row("unknown names", posts(COMPLETION, _filled(f'{{"model": "{NAME}", …}}', '"k": 1', MIB)), (400,), "prompt"),
    Row(
        "a long prompt, 128 times",
        posts(COMPLETION, {"model": NAME, "prompt": "x" * (4 * MIB - 200), "n": 128}),
        (400,),
        "is too long",
    ),
    Row("a long chat", posts(CHAT, _message(content=_TEXT)), (400,), "maximum context length"),
    Row("long chats at once", at_once(posts(CHAT, _message(content=_TEXT)), 12), (400,), "maximum context length"),
    Row("a long chat of white space", posts(CHAT, _message(content="\n" * (4 * MIB - 200))), (413,), "bytes"),
    Row("long stop words", posts(CHAT, _chat(stop=["x" * 60_000 + str(i) for i in range(64)])), (400,), "stop"),
    Row("deep JSON", posts(CHAT, b"[" * DEEP + b"]" * DEEP), (400,), "recursion limit"),
    Row(
        "deep schema",
        posts(CHAT, json.dumps(_chat()).encode()[:-1] + b', "tools": ' + b"[" * DEEP + b"]" * DEEP + b"}"),
        (400,),
        "recursion limit",
    ),
    Row("deep arguments", posts(CHAT, _called('{"a":' * DEEP + "1" + "}" * DEEP)), (400,), "no JSON object"),
    Row("arguments with half a character", posts(CHAT, _called('{"a": "\\ud800"}')), (400,), "no JSON object"),
    Row("text with half a character", posts(CHAT, _message(content="\ud800")), (400,), "hex escape"),
    Row("a stop word of half a character", posts(CHAT, _chat(stop="\udfff")), (400,), "surrogate"),
    Row("a model of half a character", posts(CHAT, {**_chat(), "model": "\ud800"}), (400,), "hex escape"),
    Row("a number of a million digits", posts(CHAT, b'{"seed": ' + b"1" * MIB + b"}"), (400,), "number out of range"),
    Row("no text", posts(CHAT, b"\xff\xfe\x00"), (400,), "no JSON"),
    Row("text/plain", posts(CHAT, _chat(), {"Content-Type": "text/plain"}), (415,), "Content-Type: application/json"),
    Row(
        "curl without a header",
        posts(CHAT, _chat(), {"Content-Type": "application/x-www-form-urlencoded"}),
        (415,),
        "JSON",
    ),
    Row("no type", posts(CHAT, _chat(), {}), (415,), "there is none"),
    Row("compressed", posts(CHAT, _chat(), JSON | {"Content-Encoding": "gzip"}), (415,), "send the body as it is"),
    Row("announced too large", sends(request(CHAT, b"", JSON | {"Content-Length": "9" * 12})), (413,), "4194304"),
    Row("sent too large", posts(CHAT, b" " * (64 * MIB)), (413,), "4194304"),
    Row(
        "tiny chunks",
        sends(
            request(CHAT, b"", JSON | {"Content-Length": "", "Transfer-Encoding": "chunked"}) + b"1\r\n \r\n" * MIB
        ),
        (400,),
        "Content-Length",
    ),
]

CONNECTIONS = [  # of the OpenAI endpoint
    Row("silent", opens(4100, b""), (), ""),
    Row("begun heads", opens(2000, b"GET / HTTP/1.1\r\nA: ", 0.002), (408,), "did not come"),
    Row("begun bodies", opens(2000, _HEAD + b"[" * 15_000, 0.005), (408,), "did not come"),
    Row("begun large bodies", opens(500, _HEAD + b"[" * 200_000, 0.005), (), ""),
    Row("heads without end", sends(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000), (431,), "16384 bytes"),
    Row("no HTTP", sends(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n"), (400,), "no HTTP/1.1"),
    Row("half a head, then closed", sends(b"POST /v1", half_close=True), (400,), "before the request was whole"),
    Row("half a body, then closed", sends(_HEAD + b"{", half_close=True), (400,), "before the request was whole"),
    Row("requests in a row", sends(request("/v1/x", b"", {}, "GET") * 20_000), (404,), "Not Found"),
]

GENERATE = "/v2/models/tensorrt_llm_bls/generate"
_BEGUN_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TRITON_HTTP = [
    Row("silent", opens(4100, b""), (), ""),
    Row("begun heads", opens(2000, b"GET / HTTP/1.1\r\nA: ", 0.002), (), ""),
    Row(
        "a long prompt", posts(GENERATE, {"text_input": "x" * 4 * MIB, "max_tokens": 2}), (400,), "shorten the prompt"
    ),
    Row("nested JSON", posts(GENERATE, b'{"text_input":' + b"[" * 1000 + b"]" * 1000 + b"}"), (400,), "text_input"),
    Row("half a character", posts(GENERATE, {"text_input": "\ud800", "max_tokens": 2}), (500,), "surrogate pair"),
    Row("no JSON", posts(GENERATE, b" " * MIB), (500,), "failed to parse the request JSON"),
    Row("no HTTP", sends(b"\x16\x03\x01\r\n\r\n"), (0,), ""),
    Row("half a head, then closed", sends(b"POST /v2", half_close=True), (0,), ""),
]
"""What Triton 24.10 does not withstand is in docs/security.md."""
TRITON_GRPC = [
    Row("silent", opens(4100, b""), (), ""),
    Row("begun HTTP/2", opens(2000, _BEGUN_HTTP2, 0.002), (), ""),
    Row("HTTP/1.1", sends(request(GENERATE, b"{}", JSON)), (0,), ""),
]
