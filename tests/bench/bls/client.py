"""The load: closed-loop streams over gRPC, in a process of its own so that its CPU time is its own.

`load/` (Go: a Python client takes several times the CPU) plays prepared requests and keeps the responses as
they came; here the requests are made, and the responses read when the window is over.
"""

import base64
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from bench.bls import prompts, tokens
from bench.bls.prompts import Prompt

SOURCE = Path(__file__).with_name("load")
CHEAP = {"GOMAXPROCS": "1", "GOGC": "off"}  # no idle thread that spins, no collector
PROMPTS_A_SECOND = 120  # more than any stub engine ends


class LoadError(RuntimeError):
    """The load could not be run, or the server failed it; the message says how."""


@dataclass(frozen=True)
class Load:
    """What to send: `draft_len` None leaves num_draft_tokens out; `group` of `groups`: see prompts.make."""

    streams: int
    seconds: float = 6.0
    warm_up: float = 3.0
    seed: int = 1
    max_tokens: int = 128
    draft_len: int | None = None
    group: int = 0
    groups: int = 1


@dataclass(frozen=True)
class Result:
    """Of the window: seconds, tokens, responses with tokens, TTFT of requests begun in it, the client's CPU seconds.

    `wrong`: requests of the whole run whose tokens were not the target's.
    """

    seconds: float
    tokens: int
    chunks: int
    requests: int
    wrong: int
    ttft_mean: float
    ttft_median: float
    cpu: float


def build(folder: Path) -> Path:
    """Build the load's program into `folder`. Raises LoadError."""
    if shutil.which("go") is None:
        raise LoadError("go is not on PATH: install Go 1.26 or newer, the load is written in it")
    subprocess.run(["go", "build", "-o", str(folder / "load"), "."], cwd=SOURCE, check=True)
    return folder / "load"


def choose(load: Load) -> list[Prompt]:
    """The prompts of a load, in the order in which they are sent."""
    count = int(load.streams + PROMPTS_A_SECOND * (load.warm_up + load.seconds))
    return prompts.make(load.seed, count, load.group, load.groups)


def lengths(load: Load) -> list[int]:
    """Lengths of the streams' first requests: spread, so that requests do not all end together."""
    rng = random.Random(load.seed)
    return [rng.randint(1, load.max_tokens) for _ in range(load.streams)]


def run(program: Path, url: str, load: Load, at_window: Callable[[], None]) -> Result:
    """Play a load; `at_window` is called when the window begins and when it ends. Raises LoadError."""
    chosen = choose(load)
    wanted = list(itertools.islice(itertools.chain(lengths(load), itertools.repeat(load.max_tokens)), len(chosen)))
    messages = [_message(*pair, load.draft_len) for pair in zip(chosen, wanted, strict=True)]
    plan = {
        "url": url,
        "streams": load.streams,
        "warm_up": load.warm_up,
        "seconds": load.seconds,
        "requests": [base64.b64encode(message).decode() for message in messages],
    }
    with subprocess.Popen(
        [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | CHEAP
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(plan))
        process.stdin.close()
        for expected in ("begin\n", "end\n"):
            if process.stdout.readline() == expected:
                at_window()
        record = process.stdout.read()
    if process.returncode:
        raise LoadError(f"the load ended with {process.returncode}: see its message above")
    return _result(json.loads(record), list(zip(chosen, wanted, strict=True)))


def _message(prompt: Prompt, max_tokens: int, draft_len: int | None) -> bytes:
    """A serialised ModelInferRequest for one greedy streamed completion."""
    request = pb.ModelInferRequest(model_name="speculative_bls")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    text = prompt.text.encode()
    tensors = [
        ("text_input", "BYTES", len(text).to_bytes(4, "little") + text),
        ("max_tokens", "INT32", max_tokens.to_bytes(4, "little")),
        ("stream", "BOOL", b"\1"),
        ("exclude_input_in_output", "BOOL", b"\1"),
    ]
    if draft_len is not None:
        tensors.append(("num_draft_tokens", "INT32", draft_len.to_bytes(4, "little")))
    for name, datatype, raw in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        request.raw_input_contents.append(raw)
    serialised: bytes = request.SerializeToString()
    return serialised


def _result(record: dict[str, Any], sent: list[tuple[Prompt, int]]) -> Result:
    begin, end = record["begin"], record["end"]
    tokens_seen = chunks = wrong = 0
    waits = []
    for answer in record["answers"]:
        got: list[int] = []
        for chunk in answer["chunks"] or []:
            ids = _ids(base64.b64decode(chunk["raw"]))
            got += ids
            if ids and begin <= chunk["at"] < end:
                chunks += 1
                tokens_seen += len(ids)
        wrong += got != _expected(*sent[answer["index"]])
        if begin <= answer["sent"] < end:
            waits.append(answer["chunks"][0]["at"] - answer["sent"])
    mean, median = (statistics.fmean(waits), statistics.median(waits)) if waits else (0.0, 0.0)
    return Result(end - begin, tokens_seen, chunks, len(waits), wrong, mean, median, record["cpu"])


def _ids(raw: bytes) -> list[int]:
    """A serialised response's token ids. Raises LoadError for an error."""
    message = pb.ModelStreamInferResponse.FromString(raw)
    if message.error_message:
        raise LoadError(f"the server refused a request: {message.error_message}")
    response = message.infer_response
    for output, content in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.name == "output_ids":
            ids: list[int] = np.frombuffer(content, np.int32).tolist()
            return ids
    return []


def _expected(prompt: Prompt, count: int) -> list[int]:
    """The target's tokens."""
    positions = np.arange(prompt.length, prompt.length + count)[None]
    expected: list[int] = tokens.true_tokens(np.array([prompt.key], np.uint64), positions)[0].tolist()
    return expected
