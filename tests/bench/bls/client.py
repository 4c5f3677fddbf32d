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
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from bench.bls import prompts, tokens
from bench.bls.prompts import ANY, Kind, Prompt
from triton.backends import alone

SOURCE = Path(__file__).with_name("load")
CHEAP = {"GOMAXPROCS": "1", "GOGC": "off"}  # no idle thread that spins, no collector
PROMPTS_A_SECOND = 120  # more than any stub engine ends


class LoadError(RuntimeError):
    """The load could not be run, or the server failed it; the message says how."""


@dataclass(frozen=True)
class Load:
    """What to send: `draft_len` None leaves num_draft_tokens out; `kind`: which prompts.

    `sampled`: with temperature and top_k; `mixed`: every other request sends one more optional tensor. `engine`: a
    model to call instead of the BLS, with the prompt's tokens; it answers a request once, or step by step where the
    load is `streaming`.
    """

    streams: int
    seconds: float = 6.0
    warm_up: float = 3.0
    seed: int = 1
    max_tokens: int = 128
    draft_len: int | None = None
    kind: Kind = ANY
    sampled: bool = False
    mixed: bool = False
    engine: str = ""
    streaming: bool = False


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
    with alone(Path(tempfile.gettempdir()) / "tandem-load.lock"):  # Go keeps what it compiles
        subprocess.run(["go", "build", "-o", str(folder / "load"), "."], cwd=SOURCE, check=True)
    return folder / "load"


def choose(load: Load) -> list[Prompt]:
    """The prompts of a load, in the order in which they are sent."""
    count = int(load.streams + PROMPTS_A_SECOND * (load.warm_up + load.seconds))
    return prompts.make(load.seed, count, load.kind)


def lengths(load: Load) -> list[int]:
    """Lengths of the streams' first requests: spread, so that requests do not all end together."""
    rng = random.Random(load.seed)
    return [rng.randint(1, load.max_tokens) for _ in range(load.streams)]


def run(program: Path, url: str, load: Load, at_window: Callable[[], None]) -> Result:
    """Play a load; `at_window` is called when the window begins and when it ends. Raises LoadError."""
    chosen = choose(load)
    wanted = list(itertools.islice(itertools.chain(lengths(load), itertools.repeat(load.max_tokens)), len(chosen)))
    messages = [_request(load, number, *pair) for number, pair in enumerate(zip(chosen, wanted, strict=True))]
    record = play(program, Plan(url, load.streams, load.warm_up, load.seconds, messages), at_window)
    return _result(record, list(zip(chosen, wanted, strict=True)), streamed=load.streaming or not load.engine)


@dataclass(frozen=True)
class Plan:
    """What the program plays: serialised ModelInferRequests in their order, `streams` at once; seconds."""

    url: str
    streams: int
    warm_up: float
    seconds: float
    messages: list[bytes]


def play(program: Path, plan: Plan, at_window: Callable[[], None]) -> dict[str, Any]:
    """The program's record (load/main.go); `at_window`: see `run`. Raises LoadError."""
    requests = [base64.b64encode(message).decode() for message in plan.messages]
    given = {"url": plan.url, "streams": plan.streams, "warm_up": plan.warm_up, "seconds": plan.seconds}
    with subprocess.Popen(
        [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | CHEAP
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({**given, "requests": requests}))
        process.stdin.close()
        for expected in ("begin\n", "end\n"):
            if process.stdout.readline() == expected:
                at_window()
        text = process.stdout.read()
    if process.returncode:
        raise LoadError(f"the load ended with {process.returncode}: see its message above")
    record: dict[str, Any] = json.loads(text)
    return record


Tensor = tuple[str, str, list[int], bytes]
"""Name, Triton's data type, shape, and the values as they are sent."""


def message(model: str, tensors: Iterable[Tensor]) -> bytes:
    """A serialised ModelInferRequest whose last response is marked."""
    request = pb.ModelInferRequest(model_name=model)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, datatype, shape, raw in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(raw)
    serialised: bytes = request.SerializeToString()
    return serialised


def completion(text: str, max_tokens: int, **more: int | float) -> list[Tensor]:
    """Tensors of one streamed completion without its prompt; `more`: numbers by name, `seed` as UINT64."""
    coded = text.encode()
    values: list[tuple[str, str, bytes]] = [
        ("text_input", "BYTES", len(coded).to_bytes(4, "little") + coded),
        ("max_tokens", "INT32", max_tokens.to_bytes(4, "little")),
        ("stream", "BOOL", b"\1"),
        ("exclude_input_in_output", "BOOL", b"\1"),
    ]
    for name, value in more.items():
        datatype = "UINT64" if name == "seed" else "INT32" if isinstance(value, int) else "FP32"
        code = {"UINT64": "<Q", "INT32": "<i", "FP32": "<f"}[datatype]
        values.append((name, datatype, struct.pack(code, value)))
    return [(name, datatype, [1, 1], raw) for name, datatype, raw in values]


def _request(load: Load, number: int, prompt: Prompt, max_tokens: int) -> bytes:
    """A serialised request for one completion: streamed by the BLS, or of an engine."""
    if load.engine:
        lengths = [("input_lengths", prompt.length), ("request_output_len", max_tokens)]
        ids: Tensor = ("input_ids", "INT32", [1, prompt.length], prompt.ids.tobytes())
        counts: list[Tensor] = [(name, "INT32", [1, 1], struct.pack("<i", n)) for name, n in lengths]
        streaming: list[Tensor] = [("streaming", "BOOL", [1, 1], b"\1")] if load.streaming else []
        return message(load.engine, [ids, *counts, *streaming])
    more: dict[str, int | float] = {} if load.draft_len is None else {"num_draft_tokens": load.draft_len}
    more |= {"temperature": 0.8, "top_k": 50} if load.sampled else {}
    more |= {"presence_penalty": 0.1} if load.mixed and number % 2 else {}
    return message("speculative_bls", completion(prompt.text, max_tokens, **more))


def _result(record: dict[str, Any], sent: list[tuple[Prompt, int]], streamed: bool) -> Result:
    begin, end = record["begin"], record["end"]
    tokens_seen, chunks, wrong = 0.0, 0, 0
    waits = []
    for answer in record["answers"]:
        got: list[int] = []
        for chunk in answer["chunks"] or []:
            ids = token_ids(base64.b64decode(chunk["raw"]))
            got += ids
            chunks += bool(ids) and begin <= chunk["at"] < end
            if streamed:
                tokens_seen += len(ids) * (begin <= chunk["at"] < end)
            else:  # they were made one after the other, and came together
                inside = min(end, chunk["at"]) - max(begin, answer["sent"])
                tokens_seen += len(ids) * max(0.0, inside) / (chunk["at"] - answer["sent"])
        wrong += got != _expected(*sent[answer["index"]])
        if begin <= answer["sent"] < end:
            waits.append(answer["chunks"][0]["at"] - answer["sent"])
    mean, median = (statistics.fmean(waits), statistics.median(waits)) if waits else (0.0, 0.0)
    return Result(end - begin, round(tokens_seen), chunks, len(waits), wrong, mean, median, record["cpu"])


def token_ids(raw: bytes) -> list[int]:
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
