"""`tandem generate` as a process against a real Triton server that serves a stand-in for the model."""

import asyncio
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem.client.generate.client import TritonClient
from tandem.client.generate.request import Request, Sampling
from triton.harness import TritonServer
from triton.repository import assemble, variables

FAKE = Path(__file__).with_name("fake_bls.py")
TANDEM = [sys.executable, "-m", "tandem", "generate"]
SECONDS = 180
TEXT = "abcdefghi"  # of nine tokens
FIGURES = "acceptance 66.7%, mean accepted length 3.00, finish: length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(repository(tmp_path_factory.mktemp("repository"))) as triton:
        yield triton


def repository(folder: Path) -> Path:
    """The operator's own model configuration, with the stand-in for its code."""
    values = variables(folder, folder, max_draft_len=3)
    assemble(folder, ["speculative_bls"], values)
    version = folder / "speculative_bls/1"
    version.unlink()  # a link
    version.mkdir()
    shutil.copy(FAKE, version / "model.py")
    return folder


def generate(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*TANDEM, "--url", url, "--max-tokens", "9", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env, check=False)


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_text_and_figures_of_each_prompt(server: TritonServer) -> None:
    done = generate(server.grpc_url, "-p", "one ", "-p", "two\n")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1:3] == ["[1/2]", f"one {TEXT}"]
    assert lines[3].startswith("[1] with speculation: 9 tokens in ") and lines[3].endswith(FIGURES)
    assert lines[5:8] == ["[2/2]", "two", TEXT]
    assert lines[-2].split()[0] == "median"


def test_json_has_the_figures(server: TritonServer) -> None:
    done = generate(server.grpc_url, "-p", "one", "--json")
    assert done.returncode == 0
    (record,) = records(done)
    times = {key: record.pop(key) for key in ("seconds", "time_to_first_token_seconds", "tokens_per_second")}
    assert 0 < times["time_to_first_token_seconds"] <= times["seconds"]
    assert times["tokens_per_second"] == pytest.approx(9 / times["seconds"])
    assert record == {
        "index": 0, "prompt": "one", "text": TEXT, "finish_reason": "length", "input_tokens": 5, "output_tokens": 9,
        "output_ids": list(range(9)), "target_passes": 3, "draft_tokens": 9, "accepted_draft_tokens": 6,
        "acceptance_rate": pytest.approx(2 / 3), "mean_accepted_length": 3.0,
    }  # fmt: skip


def test_all_options_reach_the_server(server: TritonServer) -> None:
    options = "--num-draft-tokens 2 --temperature 0.5 --top-k 4 --top-p 0.75 --seed 18446744073709551615 --stop x"
    done = generate(server.grpc_url, "-p", "inputs", *options.split(), "--stop", "é\n", "--json")
    assert json.loads(records(done)[0]["text"]) == {
        "text_input": ["inputs"], "max_tokens": [9], "num_draft_tokens": [2], "temperature": [0.5], "top_k": [4],
        "top_p": [0.75], "seed": [2**64 - 1], "stop_words": ["x", "é\n"], "stream": [True],
        "exclude_input_in_output": [True],
    }  # fmt: skip


COMPARISONS = [
    # name, prompt, options, exit code, what is said
    ("the same tokens", "same", [], 0, "target alone, same tokens"),
    ("a greedy difference fails", "differ", [], 3, "tokens differ from token 5 on: WRONG"),
    ("a sampled difference does not", "differ", ["--temperature", "1"], 0, "token 5 on: sampled, so they may"),
]


@pytest.mark.parametrize(
    ("prompt", "options", "code", "said"), [c[1:] for c in COMPARISONS], ids=[c[0] for c in COMPARISONS]
)
def test_compare(server: TritonServer, prompt: str, options: list[str], code: int, said: str) -> None:
    done = generate(server.grpc_url, "-p", prompt, "--compare", *options)
    assert done.returncode == code
    labels = [line.split(":")[0] for line in done.stdout.splitlines()[1:]]
    assert labels == ["with speculation", "target alone", "compared"]
    assert said in done.stdout
    assert done.stderr == "warming up the server\nprompt 1 of 1: target alone, to compare\n"


def test_a_comparison_is_not_the_server_s_first_work(server: TritonServer) -> None:
    before = len(server.log)
    assert generate(server.grpc_url, "-p", "one", "--compare").returncode == 0
    assert server.log[before:].count("fake_bls: a request") == 4, "two to warm up, two that are measured"


def test_a_refused_prompt_does_not_keep_the_others(server: TritonServer) -> None:
    done = generate(server.grpc_url, "-p", "refuse", "-p", "one", "--json", "--compare")
    refused, completed = records(done)
    assert done.returncode == 1
    assert refused["error"] == "request refused: the prompt is refused: write another"
    assert (completed["text"], completed["same_tokens"]) == (TEXT, True)


def test_prompts_at_once_are_shown_in_their_order(server: TritonServer) -> None:
    # None of these ends before all run; with fewer at a time they would be refused in the end.
    done = generate(server.grpc_url, "-p", "meet c", "-p", "meet a", "-p", "meet b", "--concurrency", "3", "--json")
    assert done.returncode == 0
    assert [record["prompt"] for record in records(done)] == ["meet c", "meet a", "meet b"]


def test_no_more_prompts_at_once_than_asked_for(server: TritonServer) -> None:
    before = len(server.log)
    prompts = [argument for i in range(5) for argument in ("-p", "hold")]
    assert generate(server.grpc_url, *prompts, "--concurrency", "2", "--json").returncode == 0
    held = re.findall(r"fake_bls: holding (\d+)", server.log[before:])
    assert (len(held), max(held)) == (5, "2")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "asked to end"]
)
def test_a_signal_cancels_the_stream(server: TritonServer, number: signal.Signals, code: int) -> None:
    cancelled = server.log.count("fake_bls: cancelled")
    command = [*TANDEM, "--url", server.grpc_url, "-p", "endless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout
        assert process.stdout.read(1) == b"e", "of the prompt, which comes with the first chunk"
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert out.endswith(b"a\n"), "the line is ended"
    assert err == b"", "no trace is shown"
    wait_until(lambda: server.log.count("fake_bls: cancelled") == cancelled + 1)


async def test_leaving_a_stream_cancels_it_though_the_connection_stays(server: TritonServer) -> None:
    cancelled = server.log.count("fake_bls: cancelled")
    async with TritonClient(server.grpc_url) as client:
        async with contextlib.aclosing(client.stream(Request("endless", Sampling(9)))) as chunks:
            assert (await anext(chunks)).text == "a"
        await asyncio.to_thread(wait_until, lambda: server.log.count("fake_bls: cancelled") == cancelled + 1)
        await client.check()


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def on_terminal(command: list[str], **environment: str) -> str:
    """What `command` writes to a terminal."""
    leader, follower = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"} | environment
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        shown = b""
        try:
            while data := os.read(leader, 4096):
                shown += data
        except OSError:
            pass  # Linux ends a terminal whose other side is closed this way
        os.close(leader)
    assert process.returncode == 0
    return shown.decode()


def test_a_terminal_shows_accepted_text_in_its_own_colour(server: TritonServer) -> None:
    shown = on_terminal([*TANDEM, "--url", server.grpc_url, "-p", "one ", "--max-tokens", "6"])
    assert "\x1b[2mone \x1b[0m\x1b[32mab\x1b[0mc\x1b[32mde\x1b[0mf\r\n" in shown


def test_no_color_has_no_escape_sequence_on_standard_output(server: TritonServer) -> None:
    command = [*TANDEM, "--url", server.grpc_url, "-p", "one ", "--max-tokens", "6"]
    shown = on_terminal(["bash", "-c", '"$@" 2>/dev/null', "bash", *command], NO_COLOR="1")
    assert shown.startswith("one abcdef\r\n")
    assert "\x1b" not in shown


def test_a_stream_that_ends_early_is_no_completion(server: TritonServer) -> None:
    done = generate(server.grpc_url, "-p", "cut")
    assert done.returncode == 1
    assert "error: the stream ended after 1 tokens, before the completion did" in done.stderr


def test_a_server_that_is_not_there() -> None:
    done = generate("127.0.0.1:1", "-p", "one")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no Triton server answers at 127.0.0.1:1 ")
    assert len(done.stderr.splitlines()) == 1


def test_a_server_of_something_else(server: TritonServer, tmp_path: Path) -> None:
    repository(tmp_path)
    config = tmp_path / "speculative_bls/config.pbtxt"
    config.write_text(config.read_text().replace('name: "speculative_bls"', 'name: "resnet"'))
    (tmp_path / "speculative_bls").rename(tmp_path / "resnet")
    with TritonServer(tmp_path) as other:
        done = generate(other.grpc_url, "-p", "one")
    assert done.returncode == 1
    assert "has none of the models speculative_bls, tensorrt_llm_stream (its models: resnet)" in done.stderr


def test_a_server_that_dies(tmp_path: Path) -> None:
    with TritonServer(repository(tmp_path)) as triton:
        command = [*TANDEM, "--url", triton.grpc_url, "-p", "endless"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.read(len("endlessaaa"))
            os.kill(triton.pid, signal.SIGKILL)
            _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert err.startswith("error: no Triton server answers at ")


FAKE_KUBECTL = """#!/bin/bash
# Stands for a cluster with the service `quick`, whose pod is the server at {url}.
cd {folder}
case "$1" in
get) cat service.json ;;
port-forward) echo $$ > forward.pid; echo 'Forwarding from {url} -> 8001'; exec sleep 600 ;;
esac
"""


def test_a_service_by_name_goes_through_a_port_forward(server: TritonServer, tmp_path: Path) -> None:
    ready = {"type": "Available", "status": "True", "reason": "ServersAnswer", "message": ""}
    service = {
        "metadata": {"name": "quick", "namespace": "demo", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [ready]},
    }
    (tmp_path / "service.json").write_text(json.dumps(service))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(FAKE_KUBECTL.format(url=server.grpc_url, folder=tmp_path))
    kubectl.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*TANDEM, "quick", "-p", "one", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env, check=True)
    assert records(done)[0]["finish_reason"] == "length"
    forward = (tmp_path / "forward.pid").read_text().strip()
    assert not Path("/proc", forward).exists(), "the port-forward ends with the command"
