"""`tandem chat` against the endpoint itself, with a Triton that answers what a test says."""

import asyncio
import contextlib
import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.serving.openai import FakeTriton, lifespan, listening, tokenizer_folder, write_certificate
from tandem.cli import app as commands
from tandem.client.chat import app
from tandem.client.chat.app import Conversation, converse, figures
from tandem.client.chat.endpoint import ChatAnswer, ChatEndpoint, EndpointAccess
from tandem.client.generate.cluster import Found
from tandem_serving.openai.access import ApiKeys
from tandem_serving.openai.metrics import Metrics
from tandem_serving.openai.model import ChatModel
from tandem_serving.openai.server import Endpoint, application
from tandem_serving.openai.triton import Chunk

FIGURES = {"input_tokens": 5, "output_tokens": 20, "draft_tokens": 40, "accepted_draft_tokens": 9}
ANSWER = ((0, Chunk("He\x1b", [], [], "", {})), (0, Chunk("llo", [], [], "end_id", FIGURES)))
OPERATOR = Path(__file__).parents[3] / "operator"
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"


class Hangs(FakeTriton):
    """Answers the beginning, and then nothing."""

    async def generate(
        self, requests: Sequence[Mapping[str, Any]], outputs: Sequence[str]
    ) -> AsyncGenerator[tuple[int, Chunk]]:
        """The beginning."""
        yield 0, Chunk("begun", [], [], "", {})
        await asyncio.Event().wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tokenizer_folder(tmp_path, PLAIN)


def served(triton: FakeTriton, folder: Path, keys: Path | None = None) -> Any:
    return application(Endpoint("m", triton, ChatModel(folder), ApiKeys(keys), 100_000, Metrics(0)), lifespan)


def prompts(triton: FakeTriton, folder: Path) -> list[str]:
    """What the template made of each request."""
    model = ChatModel(folder)
    return [model.decode(tensors[0]["input_ids"].reshape(-1).tolist()) for tensors, _ in triton.calls]


def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(commands, ["chat", *arguments], input=stdin)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("by", ["argument", "standard input"])
def test_one_answer(folder: Path, by: str) -> None:
    triton = FakeTriton(*ANSWER)
    with listening(served(triton, folder)) as url:
        options = ("--url", f"{url}/v1/", "--system", "Be brief.", "--max-tokens", "7", "--temperature", "0")
        code, out, err = run(*options, *(["Say", "hello"] if by == "argument" else []), stdin="Say hello\n")
    assert (code, out, err) == (0, "He\u241bllo\n", ""), "without a terminal no figures, nor control characters"
    assert prompts(triton, folder) == ["[system]Be brief.\n[user]Say hello\n"]
    [([tensors], _)] = triton.calls
    assert (tensors["max_tokens"].item(), tensors["temperature"].item()) == (7, 0)


WRONG: list[tuple[list[str], str, int, str]] = [
    # options, standard input, exit code, what is said
    ([], "x", 2, "give the name of a service"),
    (["--url", "URL"], " \n", 2, "no message"),
    (["--url", "http://127.0.0.1:1/v1", "x"], "", 1, "does not answer"),
    (["--url", "URL", "--ca", "/nowhere", "x"], "", 1, "has no certificates"),
]


@pytest.mark.parametrize(("options", "stdin", "code", "said"), WRONG, ids=[row[-1] for row in WRONG])
def test_what_is_wrong_is_said(options: list[str], stdin: str, code: int, said: str) -> None:
    found, _, err = run(*options, stdin=stdin)
    assert found == code
    assert said in " ".join(err.replace("│", " ").split())


def test_a_key_is_asked_for_by_its_option(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = folder / "keys"
    keys.mkdir()
    (keys / "one").write_text("secret")
    with listening(served(FakeTriton(*ANSWER), folder, keys)) as url:
        options = ("--url", f"{url}/v1", "x")
        code, _, err = run(*options)
        assert (code, "give the key by --api-key or TANDEM_API_KEY" in err) == (1, True)
        assert run(*options, "--api-key", "secret")[0] == 0
        monkeypatch.setenv("TANDEM_API_KEY", "secret")
        assert run(*options)[0] == 0


def test_an_error_in_the_stream_is_the_command_s(folder: Path) -> None:
    from tandem_serving.openai.errors import ApiError

    with listening(served(FakeTriton(ANSWER[0], ApiError(503, "no room")), folder)) as url:
        code, _, err = run("--url", f"{url}/v1", "x")
    assert (code, err) == (1, "error: no room\n")


def typed(*lines: str | type[BaseException]) -> Callable[[], Awaitable[str]]:
    """A person who types these lines, or presses these keys, and then ends the chat."""
    left = iter(lines)

    async def ask() -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return ask


async def talk(url: str, *lines: str | type[BaseException]) -> tuple[Conversation, str, str]:
    out, notes = Console(file=io.StringIO(), width=200), Console(file=io.StringIO(), width=200)
    async with ChatEndpoint(EndpointAccess(f"{url}/v1")) as endpoint:
        conversation = Conversation(endpoint, {"model": await endpoint.model()}, "", out, notes)
        await converse(conversation, typed(*lines), notes)  # type: ignore[arg-type]
    return conversation, out.file.getvalue(), notes.file.getvalue()  # type: ignore[attr-defined]


async def test_a_conversation_has_all_that_was_said(folder: Path) -> None:
    triton = FakeTriton(*ANSWER)
    with listening(served(triton, folder)) as url:
        _, out, notes = await talk(url, "one", "  ", KeyboardInterrupt, "two")
    assert out == "He\u241bllo\n" * 2
    first, second = prompts(triton, folder)
    assert first == "[user]one\n"
    assert second == "[user]one\n[assistant]He\x1bllo\n[user]two\n"
    assert notes.count("20 tokens") == notes.count("9 of 40 draft tokens accepted") == 2


async def test_what_was_refused_was_not_said(folder: Path) -> None:
    triton = FakeTriton(*ANSWER)
    with listening(served(triton, folder)) as url:
        conversation, _, notes = await talk(url, "x" * 200_000, "short")
    assert "error: the body has more than 100000 bytes" in notes
    assert [message["content"] for message in conversation.messages] == ["short", "He\x1bllo"]


class PressesCtrlC(io.StringIO):
    """A terminal before which somebody does so once there is text."""

    def write(self, text: str) -> int:
        """Write it."""
        if "begun" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


async def test_ctrl_c_ends_the_answer_and_what_came_is_kept(folder: Path) -> None:
    out, notes = Console(file=PressesCtrlC()), Console(file=io.StringIO())
    with listening(served(Hangs(), folder)) as url:
        async with ChatEndpoint(EndpointAccess(f"{url}/v1")) as endpoint:
            conversation = Conversation(endpoint, {"model": "m"}, "", out, notes)
            assert not await asyncio.wait_for(conversation.say("go on"), 60)
    assert conversation.messages[-1] == {"role": "assistant", "content": "begun"}


@pytest.fixture
def forwarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A service of the cluster with an endpoint at that URL, forwarded to that HOST:PORT."""

    def found(openai_url: str, address: str) -> None:
        async def find(*_: Any) -> Found:
            return Found("quick", "demo", "", openai_url)

        @contextlib.asynccontextmanager
        async def forward(service: Found, port: int) -> Any:
            assert f":{port}/" in openai_url
            yield address

        monkeypatch.setattr(app, "find_available", find)
        monkeypatch.setattr(app, "port_forward", forward)

    yield found


def test_a_service_s_certificate_is_checked_by_its_own_name(
    folder: Path, tmp_path: Path, forwarded: Callable[[str, str], None]
) -> None:
    for name in ("quick-triton.demo.svc", "other"):
        (tmp_path / name).mkdir()
        write_certificate(tmp_path / name, name)
        ca = ("--ca", str(tmp_path / name / "tls.crt"))
        with listening(served(FakeTriton(*ANSWER), folder), tmp_path / name) as url:
            forwarded("https://quick-triton.demo.svc:443/v1", url.removeprefix("https://"))
            code, _, err = run("quick", "x", *ca)
            assert (code, "certificate" in err) == ((0, False) if name != "other" else (1, True))
            assert run("quick", "x")[0] == 0, "the forward is authenticated by the API server"


def test_a_service_without_an_endpoint_says_so(forwarded: Callable[[str, str], None]) -> None:
    forwarded("", "")
    code, _, err = run("quick", "x")
    assert (code, "demo/quick has no OpenAI endpoint" in err) == (1, True)


def test_what_is_not_known_of_an_answer_is_left_out() -> None:
    assert figures(ChatAnswer()) == ""
    assert (
        figures(ChatAnswer(seconds=2, first_seconds=0.5, tokens=20)) == "20 tokens, 10.0 tokens/s, first token 0.50 s"
    )


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, *command: str) -> None:
        self.descriptor, theirs = pty.openpty()
        self.left = b""
        environment = {**os.environ, "PYTHONPATH": str(OPERATOR), "PROMPT_TOOLKIT_NO_CPR": "1"}
        # Ctrl-C is a signal to the programs whose terminal it is.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)

    def until(self, word: str, seconds: float = 240) -> None:
        """Read up to where it stands; what comes after it is left."""
        deadline = time.monotonic() + seconds
        while word.encode() not in self.left:
            assert time.monotonic() < deadline, (word, self.left)
            if select.select([self.descriptor], [], [], 1)[0]:
                self.left += os.read(self.descriptor, 4096)
        self.left = self.left.partition(word.encode())[2]

    def type(self, keys: str) -> None:
        """As a person does."""
        os.write(self.descriptor, keys.encode())

    def ended(self) -> int:
        """The command's exit code, once it has ended."""
        with contextlib.suppress(OSError):  # of a terminal without a program
            while os.read(self.descriptor, 4096):
                pass
        os.close(self.descriptor)
        return self.process.wait()


@pytest.mark.parametrize("interrupted", [False, True], ids=["an answer", "Ctrl-C in an answer"])
def test_on_a_terminal_it_is_a_conversation_that_ctrl_d_ends(folder: Path, interrupted: bool) -> None:
    with listening(served(Hangs() if interrupted else FakeTriton(*ANSWER), folder)) as url:
        terminal = Terminal(sys.executable, "-m", "tandem", "chat", "--url", f"{url}/v1")
        terminal.until(READS)
        terminal.type("hello\r")
        if interrupted:
            terminal.until("begun")
            terminal.type("\x03")
            terminal.until("interrupted")
        else:
            terminal.until("9 of 40 draft tokens accepted")
        terminal.until(READS)
        terminal.type("\x04")
        assert terminal.ended() == 0


READS = "\x1b[?2004h"
"""What prompt_toolkit writes when it begins to read: pasted text is to be marked."""
