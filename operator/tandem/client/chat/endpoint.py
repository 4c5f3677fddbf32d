"""A service's OpenAI endpoint as a client has it: the model's name, and answers as they come."""

import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from tandem.errors import TandemError

CONNECT_SECONDS = 10
LINE_BYTES = 1 << 20
"""The longest event."""
Message = Mapping[str, str]


class ChatError(TandemError):
    """The endpoint cannot be reached, or refuses; the message says why."""


@dataclass(frozen=True)
class EndpointAccess:
    """How to reach an endpoint. `url`: its base URL, with /v1; `host`: the name on its certificate, empty: the URL's;
    `trust`: the certificates that are trusted, None: the certificate is not checked."""

    url: str
    api_key: str = ""
    host: str = ""
    trust: ssl.SSLContext | None = field(default_factory=ssl.create_default_context)


@dataclass
class ChatAnswer:
    """An answer as far as it has come. `seconds`: since it was asked for; figures are None before its end, or where
    the endpoint does not report them."""

    text: str = ""
    seconds: float = 0.0
    first_seconds: float | None = None
    tokens: int | None = None
    accepted: int | None = None
    drafted: int | None = None


class ChatEndpoint:
    """A context manager. Raises ChatError wherever it does not get what it asks for."""

    def __init__(self, access: EndpointAccess) -> None:
        self._access = access

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._access.api_key}"} if self._access.api_key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        # Proxies are for other hosts: a forward is on this machine.
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout, read_bufsize=LINE_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def model(self) -> str:
        """The name of the model that is served."""
        async for line in self._lines("GET", "models"):
            try:
                return str(json.loads(line)["data"][0]["id"])
            except (ValueError, LookupError, TypeError):
                break
        raise ChatError(f"{self._access.url}/models names no model: is this the base URL of an OpenAI endpoint?")

    async def answers(self, request: Mapping[str, Any], messages: Sequence[Message]) -> AsyncGenerator[ChatAnswer]:
        """The answer to `messages`, each time more of it has come; `request`: the other parameters."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        begun, answer = time.monotonic(), ChatAnswer()
        async for line in self._lines("POST", "chat/completions", {**request, **options, "messages": [*messages]}):
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            _add(answer, json.loads(data))
            answer.seconds = time.monotonic() - begun
            if answer.text and answer.first_seconds is None:
                answer.first_seconds = answer.seconds
            yield answer

    async def _lines(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> AsyncIterator[str]:
        url, trust = f"{self._access.url}/{path}", self._access.trust
        host = self._access.host if urlsplit(url).scheme == "https" else ""
        try:
            async with self._session.request(
                method, url, json=body, ssl=trust or False, server_hostname=host or None
            ) as reply:
                if reply.status != 200:
                    raise ChatError(_refusal(reply.status, await reply.text()))
                async for line in reply.content:
                    yield line.decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ChatError(
                f"{url} does not answer as an OpenAI endpoint: {error or type(error).__name__}"
            ) from error


def _add(answer: ChatAnswer, event: Mapping[str, Any]) -> None:
    if error := event.get("error"):
        raise ChatError(str(error.get("message")))
    for choice in event.get("choices", ()):
        answer.text += choice["delta"].get("content") or ""
    if usage := event.get("usage"):
        details = usage.get("completion_tokens_details") or {}
        answer.tokens = usage["completion_tokens"]
        answer.accepted = details.get("accepted_prediction_tokens")
        if answer.accepted is not None:
            answer.drafted = answer.accepted + details.get("rejected_prediction_tokens", 0)


def _refusal(status: int, body: str) -> str:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = " ".join(body.split())[:200]
    key = "; give the key by --api-key or TANDEM_API_KEY" if status == 401 else ""
    return f"{message or 'refused'} (HTTP {status}){key}"
