"""Which servers can be asked for what, and signals that end a run."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tritonclient.grpc import model_config_pb2, service_pb2

from tandem.client.generate import app
from tandem.client.generate.client import TritonClient
from tandem.client.generate.cluster import Found
from tandem.client.generate.errors import ServerError, UnreachableError
from tandem.client.generate.view import Progress

OPERATOR = Path(__file__).parents[3] / "operator"


class Triton:
    """Stands for Triton's client: the models that are ready, and the parameters of them all."""

    def __init__(self, models: set[str], **parameters: str) -> None:
        self._models, self._parameters = models, parameters
        self.inputs: list[str] = []

    async def is_model_ready(self, name: str, **_: Any) -> bool:
        return name in self._models

    async def get_model_config(self, name: str, **_: Any) -> service_pb2.ModelConfigResponse:
        found = service_pb2.ModelConfigResponse()
        found.config.name = name
        found.config.input.extend(model_config_pb2.ModelInput(name=each) for each in self.inputs)
        for key, value in self._parameters.items():
            found.config.parameters[key].string_value = value
        return found


DEAF = "leave out --num-draft-tokens and --compare; compare with a service of decodingType None"


@pytest.mark.parametrize(
    ("triton", "why"),
    [
        (Triton({"speculative_bls"}, max_draft_len="0"), "no draft model: its engine speculates by itself"),
        (Triton({"tensorrt_llm_stream"}), "mode LLMAPI, whose engine decides itself"),
    ],
    ids=["Medusa, Lookahead or None", "mode LLMAPI"],
)
async def test_a_server_that_drafts_by_itself_cannot_be_compared_with_itself(triton: Any, why: str) -> None:
    server = TritonClient("host:8001")
    server._client = triton
    await server.check()
    with pytest.raises(ServerError, match=why) as refused:
        await server.check(drafts_by_request=True)
    assert DEAF in str(refused.value)


async def test_a_server_with_a_draft_model_can(monkeypatch: pytest.MonkeyPatch) -> None:
    server = TritonClient("host:8001")
    monkeypatch.setattr(server, "_client", Triton({"speculative_bls"}, max_draft_len="4"))
    await server.check(drafts_by_request=True)


@pytest.mark.parametrize(
    ("model", "inputs", "shows"),
    [
        ("speculative_bls", ["text_input", "return_refused_draft_text"], True),
        ("speculative_bls", ["text_input"], False),
        ("tensorrt_llm_stream", ["text_input"], False),
    ],
    ids=["now", "a revision of an operator before", "mode LLMAPI"],
)
async def test_refused_tokens_are_shown_where_the_model_has_an_input_for_it(
    monkeypatch: pytest.MonkeyPatch, model: str, inputs: list[str], shows: bool
) -> None:
    server, triton = TritonClient("host:8001"), Triton({model})
    triton.inputs = inputs
    monkeypatch.setattr(server, "_client", triton)
    await server.check()
    assert await server.shows_refused() is shows


async def test_a_pod_that_goes_is_told_by_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: Any) -> Found:
        return Found("quick", "demo", "")

    @contextlib.asynccontextmanager
    async def forward(_: Found) -> AsyncIterator[str]:
        yield "127.0.0.1:40123"

    monkeypatch.setattr(app, "find_available", found)
    monkeypatch.setattr(app, "port_forward", forward)
    with pytest.raises(UnreachableError, match=r"^no answer; .*: see `tandem status quick --namespace demo`$"):
        async with app.connect(app.Endpoint("quick"), Progress(Console(file=io.StringIO()))):
            raise UnreachableError("no answer")


RUN = """
import asyncio, signal, sys

if not sys.argv[1:]:  # the tests themselves may run under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

from tandem.client.generate.app import until_signal

async def work():
    print("runs", flush=True)
    try:
        if sys.argv[1:]:
            await asyncio.to_thread(sys.stdin.readline)
        else:
            await asyncio.sleep(60)
        return 0
    finally:
        print("ends in order", flush=True)

sys.exit(asyncio.run(until_signal(work())))
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [([], 128 + signal.SIGHUP), (["nohup"], 0)],
    ids=["a terminal that closes", "nohup"],
)
def test_a_terminal_that_closes_leaves_no_port_forward(command: list[str], code: int) -> None:
    arguments = [*command, sys.executable, "-c", RUN, *command]
    env = {**os.environ, "PYTHONPATH": str(OPERATOR)}
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate("that was all\n", timeout=240)
    assert (process.returncode, out) == (code, "ends in order\n")
