"""Hours of mixed load on the speculative BLS: what grows, and is anything lost?

    PYTHONPATH=tests:operator:images:images/serving python tests/bench/soak.py --minutes 120

Streams come and go on the real Triton with the stand-in engines: streamed and unary, with and without drafts, with
stop words, seeds, logits, several prompts, bad requests, engines that fail or never answer, and clients that leave:
over HTTP, since those that leave over gRPC can end Triton itself (docs/design/triton-backend.md; `--leave-grpc`
shows it). Each answer is compared with the target's own text, each error with the one that is due. Every minute it
prints the memory of the BLS models and of the server, shared memory, threads and file descriptors; at the end it
compares the second half with the first, and prints how many calls the engines and what stands before them answered.
It exits with 1 where something grew by more than 10%, an answer was wrong, or the server died; and where rounds in
the server made few of the draft engine's calls, so that what is to be tried was not: the draft length is fixed and
the engines take time, since over engines that take none the length goes to 0 (`--adaptive`, `--step-ms 0`).
"""

import json
import queue
import random
import re
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import typer
from rich.console import Console
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import inputs, stream, text, unary, words
from triton.harness import Options, ServerError, TritonServer
from triton.repository import CLIENT_MODELS, COLLECTORS, ROUNDS
from triton.stand_in import COUNT_AHEAD, DRAFT_FAILS, DRAFT_HANGS, TARGET_FAILS

GROWTH = 0.10
SLACK = {"threads": 4.0, "fds": 8.0}
BYTES_OF_SLACK = 8e6  # allocators keep what they once had
# The C library keeps up to 240 kB of freed pieces for each thread, and Triton has 800: those fill up for hours, and
# look like a leak (docs/design/triton-backend.md).
NO_CACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
DRAFT_SECONDS = 1.0
HANGS = 0.003
LOGITS = np.ones((1, 1), np.bool_)
STALL_SECONDS = 60.0
"""Without the end of any request: far longer than the longest takes."""
LENGTHS = (4, 32, 128)
# Tokens of streams that clients leave: far from the end, where leaving can crash Triton
# (docs/design/triton-backend.md).
LONG = 512
PROMPTS = [f"def f{i}(" + "x, " * (i % 40) for i in range(64)]
STOP = ["def", "\n\n"]
LEFT = "client left"
ROUNDS_SHARE = 0.25
"""Of the draft engine's calls, those ahead of a round, at least. Only rounds in the server make them, one each; what
does not come true is drafted again."""
MODELS = {
    "speculative_bls",
    "tensorrt_llm_bls",
    "tensorrt_llm",
    "tensorrt_llm_draft",
    "preprocessing",
    "postprocessing",
}
ENGINES = {*CLIENT_MODELS, *(f"{name}_engine" for name in CLIENT_MODELS), *COLLECTORS, *ROUNDS}
"""And what stands before them."""
console = Console()

Texts = dict[tuple[str, int], str]


@dataclass
class Outcomes:
    """How requests ended, by kind; `wrong` ones in words."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    latest: float = field(default_factory=time.monotonic)  # end of a request
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, got: str, due: str) -> None:
        """Count an end; an error is right when it holds the words that are due."""
        with self.lock:
            self.ends[kind] += 1
            self.latest = time.monotonic()
            if got != due and not (kind == "refused" and due in got):
                self.wrong.append(f"{kind}: {got[:200]!r} instead of {due[:200]!r}")

    def stalled(self) -> bool:
        """Whether nothing ends any more."""
        return time.monotonic() > self.latest + STALL_SECONDS


@dataclass(frozen=True)
class Server:
    """Where Triton listens."""

    grpc: str
    http: str
    leave_grpc: bool = False


@dataclass(frozen=True)
class Plan:
    """How long, how many requests at once, and whether rounds in the server are due."""

    minutes: float
    streams: int
    rounds: bool


@dataclass(frozen=True)
class Ask:
    """A request and what is due: a text, or words of an error (`kind` "refused")."""

    kind: str
    send: Callable[[Server], str]
    due: str


def leave(server: Server, prompt: str, after: int) -> str:
    """Stream, and go after some responses."""
    if not server.leave_grpc:
        return leave_http(server.http, prompt, after)
    with bls.Stream(server.grpc) as call:
        call.send(inputs(prompt, max_tokens=LONG, end_id=-1, stream=True))
        for _ in range(after):
            if call.receive()[1]:
                break
    return LEFT


def leave_http(url: str, prompt: str, after: int) -> str:
    """The same over HTTP."""
    body = {"text_input": prompt, "max_tokens": LONG, "end_id": -1, "stream": True, "exclude_input_in_output": True}
    asked = urllib.request.Request(f"{url}/v2/models/speculative_bls/generate_stream", json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=STALL_SECONDS) as answer:
        for _ in range(after):
            while (line := answer.readline()).strip():
                if b'"error"' in line:
                    return str(line)
    return LEFT


def streamed(server: Server, tensors: dict[str, bls.Array]) -> str:
    """The texts of all prompts of a request to the decoupled model."""
    answers = stream(server.grpc, tensors)
    return "|".join(text(answers, i) for i in range(len(tensors["text_input"])))


def answered(server: Server, tensors: dict[str, bls.Array]) -> str:
    """The text of a unary request."""
    whole: bytes = unary(server.grpc, tensors)["text_output"].item()
    return whole.decode()


def until_stop(whole: str) -> str:
    """A text up to the end of the first stop word."""
    return whole[: min((whole.index(word) + len(word) for word in STOP if word in whole), default=len(whole))]


def choose(rng: random.Random, texts: Texts) -> Ask:
    """A request of a kind chosen at random."""
    length, prompts = rng.choice(LENGTHS), rng.sample(PROMPTS, 3)
    one = partial(inputs, prompts[0])
    due = texts[prompts[0], length]
    three = inputs(*prompts, max_tokens=length, stop_words=words(*[STOP] * 3))
    until = "|".join(until_stop(texts[prompt, length]) for prompt in prompts)
    draft = rng.randint(0, 8)
    flowing = partial(one, max_tokens=length, stream=True)
    asks = [
        Ask("answered", partial(streamed, tensors=flowing()), due),
        Ask("answered", partial(streamed, tensors=flowing(num_draft_tokens=draft)), due),
        Ask("answered", partial(streamed, tensors=flowing(seed=DRAFT_FAILS)), due),
        Ask("answered", partial(streamed, tensors=flowing(seed=rng.randint(1, 9))), due),
        Ask("answered", partial(streamed, tensors=flowing(return_generation_logits=LOGITS)), due),
        Ask("answered", partial(answered, tensors=one(max_tokens=length)), due),
        Ask("answered", partial(streamed, tensors=three), until),
        Ask("refused", partial(streamed, tensors=flowing(seed=TARGET_FAILS)), "fails on demand"),
        Ask("refused", partial(answered, tensors=inputs("", max_tokens=length)), "the prompt is empty"),
        Ask(
            "left",
            partial(leave, prompt=prompts[0], after=rng.randint(1, 6)),
            LEFT,
        ),
    ]
    # A draft that never comes holds up those who share its call.
    seldom = Ask("answered", partial(streamed, tensors=flowing(seed=DRAFT_HANGS)), due)
    return seldom if rng.random() < HANGS else rng.choice(asks)


def load(server: Server, seed: int, end: float, texts: Texts, outcomes: Outcomes) -> None:
    """Requests one after the other until `end`, or the server's."""
    rng = random.Random(seed)
    while time.monotonic() < end:
        ask = choose(rng, texts)
        try:
            got, kind = ask.send(server), ask.kind if ask.kind != "refused" else "answered"
        except InferenceServerException as error:
            got, kind = str(error), "refused"
        except queue.Empty:
            got, kind = "no response", "unanswered"
        outcomes.add(kind, got, ask.due)
        if outcomes.wrong:
            return


def named(process: psutil.Process) -> tuple[str, psutil.Process]:
    """A model's process with the model's name: "" for one that died and that Triton has not yet buried."""
    try:
        words = process.cmdline()  # triton_python_backend_stub .../<model>/1/model.py ...
        return Path(words[1]).parts[-3], process
    except (psutil.Error, IndexError):
        return "", process


def sample(server: TritonServer) -> dict[str, float]:
    """Bytes of memory by process, of shared memory, and threads and file descriptors. Raises ServerError."""
    process = psutil.Process(server.pid)
    models = dict(map(named, process.children()))
    if dead := MODELS - set(models):
        raise ServerError(f"models that died: {', '.join(sorted(dead))}\n{server.tail()}")
    watched = {"BLS": models["speculative_bls"], "unary BLS": models["tensorrt_llm_bls"], "server": process}
    memory = {name: each.memory_info() for name, each in watched.items()}
    return {
        **{name: each.rss - each.shared for name, each in memory.items()},
        "shared memory": sum(path.stat().st_size for path in Path("/dev/shm").glob(f"{server.shm_prefix}*")),
        "threads": sum(each.num_threads() for each in watched.values()),
        "fds": sum(each.num_fds() for each in watched.values()),
    }


def answered_calls(server: TritonServer) -> dict[str, int]:
    """Calls that each model answered so far."""
    found = re.findall(r'nv_inference_request_success{model="(\w+)",version="1"} (\d+)', server.metrics())
    return {model: int(calls) for model, calls in found}


def drafted_ahead(server: Server) -> int:
    """Calls of the draft engine that rounds in the server made ahead, so far."""
    one = np.ones((1, 1), np.int32)
    question = {"input_ids": one, "input_lengths": one, "request_output_len": one}
    question["seed"] = np.array([[COUNT_AHEAD]], np.uint64)
    return int(stream(server.grpc, question, "tensorrt_llm_draft_engine")[0]["output_ids"].item())


def few_rounds(triton: TritonServer, server: Server) -> list[str]:
    """Say what the engines and the models before them answered; a problem where rounds in the server were few."""
    ahead = drafted_ahead(server)
    calls = {model: count for model, count in answered_calls(triton).items() if model in ENGINES}
    drafts = calls["tensorrt_llm_draft_engine"]
    share = ahead / max(1, drafts)
    console.print(f"calls answered: {calls}; {share:.0%} of the drafts ahead of a round", soft_wrap=True)
    return [f"few rounds in the server: {share:.0%}, due {ROUNDS_SHARE:.0%}"] if share < ROUNDS_SHARE else []


def grown(samples: list[dict[str, float]]) -> list[str]:
    """What is larger in the second half than in the first, once all is warm (after a fifth)."""
    warm = samples[len(samples) // 5 :]
    halves = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    found = []
    for name in warm[0]:
        first, second = (max(each[name] for each in half) for half in halves)
        if second > first * (1 + GROWTH) and second - first > SLACK.get(name, BYTES_OF_SLACK):
            found.append(f"{name} grew: {first:.3g} -> {second:.3g}")
    return found


def show(minute: int, figures: dict[str, float], outcomes: Outcomes) -> None:
    """A line of figures, memory in MB."""
    shown = ", ".join(f"{name} {value if name in SLACK else value / 1e6:.0f}" for name, value in figures.items())
    console.print(f"{minute:4}  {dict(outcomes.ends)}; {shown}", soft_wrap=True)


def target_alone(server: Server, threads: ThreadPoolExecutor) -> Texts:
    """The text of each prompt and length without a draft."""
    keys = [(prompt, length) for prompt in PROMPTS for length in LENGTHS]
    asks = [inputs(prompt, max_tokens=length, num_draft_tokens=0) for prompt, length in keys]
    return dict(zip(keys, threads.map(lambda tensors: streamed(server, tensors), asks), strict=True))


def play(triton: TritonServer, server: Server, threads: ThreadPoolExecutor, plan: Plan) -> list[str]:
    """Load and watch the server; what was wrong, and what grew. Raises ServerError."""
    outcomes, samples = Outcomes(), []
    texts = target_alone(server, threads)
    end = time.monotonic() + 60 * plan.minutes
    loads = [threads.submit(load, server, seed, end, texts, outcomes) for seed in range(plan.streams)]
    while time.monotonic() < end and not outcomes.wrong:
        time.sleep(min(60.0, max(1.0, 3 * plan.minutes)))
        samples.append(sample(triton))
        show(len(samples), samples[-1], outcomes)
        if outcomes.stalled():
            raise ServerError(f"no request has ended for {STALL_SECONDS:.0f} s\n{triton.tail()}")
    for each in loads:
        each.result()
    if outcomes.wrong:
        return outcomes.wrong
    few = few_rounds(triton, server)
    return grown(samples) + (few if plan.rounds else [])


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 120.0,
    streams: Annotated[int, typer.Option(help="Requests at once.")] = 16,
    separate: Annotated[bool, typer.Option(help="Engines on devices of their own.")] = False,
    adaptive: Annotated[bool, typer.Option(help="The draft length is learnt: few rounds, or none.")] = False,
    step_ms: Annotated[float, typer.Option(help="A step of the target; the draft engine's takes a quarter.")] = 4.0,
    leave_grpc: Annotated[bool, typer.Option(help="Clients leave over gRPC, which can end the server.")] = False,
) -> None:
    """Mixed load: each answer checked; memory, shared memory, threads and file descriptors watched."""
    options = Options(env={"STAND_IN_STEP_SECONDS": str(step_ms / 1000), **NO_CACHES})
    with tempfile.TemporaryDirectory() as folder:
        made = bls.repository(
            Path(folder),
            "stand-in",
            **{"max_engine_rows": 64, "adaptive": adaptive, "probe_share": 0.05},
            **{"separate_devices": separate, "draft_timeout_seconds": DRAFT_SECONDS},
        )
        # The server ends first: where it broke, clients would wait for it for ever.
        with ThreadPoolExecutor(streams) as threads, TritonServer(made, options) as triton:
            server = Server(triton.grpc_url, triton.http_url, leave_grpc)
            problems = play(triton, server, threads, Plan(minutes, streams, rounds=not adaptive))
    if problems:
        console.print(f"[red]{'; '.join(problems)}")
        raise typer.Exit(1)
    console.print("nothing grew, nothing was lost")


if __name__ == "__main__":
    typer.run(main)
