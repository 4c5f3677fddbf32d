"""`tandem chat` without its command line: one answer, or a conversation on a terminal."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prompt_toolkit import PromptSession
from rich.console import Console

from tandem import names
from tandem.client.chat.endpoint import ChatAnswer, ChatEndpoint, ChatError, EndpointAccess, Message
from tandem.client.generate.cluster import find_available, port_forward
from tandem.client.generate.format import printable
from tandem.client.kubectl import ClusterError

INTERRUPTED = 130
HINT = "Ctrl-C ends an answer, Ctrl-D the chat."
PROMPT = "> "
Ask = Callable[[], Coroutine[Any, Any, str]]
"""The user's next message. Raises KeyboardInterrupt: what is typed is given up; EOFError: the chat is over."""


@dataclass(frozen=True)
class ChatTarget:
    """Where the endpoint is: `url` (its base URL), or the service `name` of the current cluster, waited for up to
    `wait_seconds`. `ca`: a file with the certificates that are trusted; without one those of the machine are, and
    over a port-forward none is asked for: the API server has authenticated the way."""

    name: str = ""
    namespace: str | None = None
    url: str = ""
    wait_seconds: float = 0
    api_key: str = ""
    ca: Path | None = None


class Conversation:
    """Messages so far, and the answers to them, shown on `console` as they come; figures go to `notes`."""

    def __init__(
        self, endpoint: ChatEndpoint, request: Mapping[str, Any], system: str, console: Console, notes: Console
    ) -> None:
        self._endpoint, self._request, self._console, self._notes = endpoint, request, console, notes
        self.messages: list[Message] = [{"role": "system", "content": system}] if system else []

    async def say(self, text: str) -> bool:
        """Show the answer to `text`; whether it came to its end. What had come when it was interrupted is kept.

        Raises:
            ChatError: the endpoint refuses; then `text` is not part of the conversation.
        """
        answer = ChatAnswer()
        asked: Message = {"role": "user", "content": text}
        whole = await _interruptible(self._show(answer, [*self.messages, asked]))
        self.messages += [asked, {"role": "assistant", "content": answer.text}]
        self._console.print()
        self._notes.print(figures(answer) if whole else "interrupted", style="dim", highlight=False)
        return whole

    async def _show(self, shown: ChatAnswer, messages: list[Message]) -> None:
        async with contextlib.aclosing(self._endpoint.answers(self._request, messages)) as answers:
            async for answer in answers:
                new = printable(answer.text[len(shown.text) :])
                self._console.print(new, end="", markup=False, highlight=False, soft_wrap=True)
                shown.__dict__.update(answer.__dict__)


def figures(answer: ChatAnswer) -> str:
    """What is known of an answer, on one line. Pure."""
    parts = []
    if answer.tokens is not None and answer.seconds:
        parts += [f"{answer.tokens} tokens", f"{answer.tokens / answer.seconds:.1f} tokens/s"]
    if answer.first_seconds is not None:
        parts.append(f"first token {answer.first_seconds:.2f} s")
    if answer.drafted:
        parts.append(f"{answer.accepted} of {answer.drafted} draft tokens accepted")
    return ", ".join(parts)


async def _interruptible(work: Coroutine[Any, Any, None]) -> bool:
    """Whether it came to its end; Ctrl-C ends it."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled() or asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return True


def chat(target: ChatTarget, request: Mapping[str, Any], system: str, message: str | None) -> int:
    """The answer to `message`, or without one a conversation; returns the exit code.

    Raises:
        ChatError, ClusterError: the endpoint cannot be reached, or refused the one message.
    """
    notes = Console(stderr=True, soft_wrap=True)
    if message is not None and not notes.is_terminal:
        notes.quiet = True
    return asyncio.run(_run(target, request, system, message, notes))


async def _run(
    target: ChatTarget, request: Mapping[str, Any], system: str, message: str | None, notes: Console
) -> int:
    async with _connected(target, notes) as access, ChatEndpoint(access) as endpoint:
        named = {**request, "model": await endpoint.model()}
        conversation = Conversation(endpoint, named, system, Console(soft_wrap=True), notes)
        if message is not None:
            return 0 if await conversation.say(message) else INTERRUPTED
        notes.print(f"{named['model']}. {HINT}", style="dim", highlight=False)
        session: PromptSession[str] = PromptSession(PROMPT)
        await converse(conversation, session.prompt_async, notes)
        return 0


async def converse(conversation: Conversation, ask: Ask, notes: Console) -> None:
    """Message by message until there is no more. A refusal is shown, and the chat goes on."""
    while True:
        try:
            text = (await ask()).strip()
            if text:
                await conversation.say(text)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        except ChatError as error:
            notes.print(f"error: {error}", style="red", highlight=False, markup=False)


@contextlib.asynccontextmanager
async def _connected(target: ChatTarget, notes: Console) -> AsyncIterator[EndpointAccess]:
    """The way to the endpoint. Raises ClusterError, ChatError."""
    trust = _trust(target.ca)
    if target.url:
        yield EndpointAccess(target.url.rstrip("/"), target.api_key, trust=trust)
        return
    found = await find_available(target.name, target.namespace, target.wait_seconds, notes.print)
    if not found.openai_url:
        raise ClusterError(
            f"{found.namespace}/{found.name} has no OpenAI endpoint: remove serving.openAI.enabled: false; servers"
            " from before Tandem had one get it with their next revision"
        )
    url = urlsplit(found.openai_url)
    assert url.port
    async with port_forward(found, url.port) as address:
        host = f"{names.endpoint(found.name)}.{found.namespace}.svc"
        base = f"{url.scheme}://{address}{url.path}"
        yield EndpointAccess(base, target.api_key, host, trust if target.ca else None)


def _trust(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ChatError(f"{ca} has no certificates that can be read: {error}") from error
