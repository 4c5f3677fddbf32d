"""Hours of mixed load on the speculative BLS: what grows?

    PYTHONPATH=tests:operator:images:images/serving python tests/bench/soak.py --minutes 120

Streams come and go on the real Triton with the stand-in engines: streamed and unary, with and without drafts,
with stop words, several prompts, bad requests, failing engines, and clients that leave. Every minute it
prints the memory of the BLS and of the server, shared memory, threads and requests; at the end it compares
the second half with the first and exits with 1 where something grew by more than 10%.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import inputs, stream, unary, words
from triton.harness import TritonServer
from triton.stand_in import DRAFT_FAILS, TARGET_FAILS

GROWTH = 0.10
SLACK = 8e6  # bytes that are no growth: allocators keep what they once had
console = Console()


@dataclass
class Counts:
    """Requests by how they ended."""

    answered: int = 0
    refused: int = 0
    left: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str) -> None:
        """Count one."""
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)


def leave(url: str, tensors: dict[str, bls.Array]) -> None:
    """Stream, and go after the first response."""
    with bls.Stream(url) as call:
        call.send(tensors)
        call.receive()


def one_request(url: str, rng: random.Random, counts: Counts) -> None:
    """One request of a kind chosen at random."""
    prompt = f"def f{rng.randint(0, 10**6)}(" + "x, " * rng.randint(0, 40)
    more: dict[str, Any] = {"max_tokens": rng.choice([4, 32, 128])}
    kinds: list[tuple[Callable[..., Any], dict[str, bls.Array]]] = [
        (stream, inputs(prompt, stream=True, **more)),
        (stream, inputs(prompt, stream=True, num_draft_tokens=rng.randint(0, 8), **more)),
        (unary, inputs(prompt, **more)),
        (stream, inputs(prompt, "class A", "import os", stop_words=words(*[["def", "\n\n"]] * 3), **more)),
        (stream, inputs(prompt, stream=True, seed=rng.choice([DRAFT_FAILS, TARGET_FAILS]), **more)),
        (stream, inputs("", **more)),
        (leave, inputs(prompt, stream=True, **more)),
    ]
    call, tensors = rng.choice(kinds)
    try:
        call(url, tensors)
        counts.add("left" if call is leave else "answered")
    except InferenceServerException:
        counts.add("refused")


def load(url: str, seed: int, end: float, counts: Counts) -> None:
    """Requests one after the other until `end`."""
    rng = random.Random(seed)
    while time.monotonic() < end:
        one_request(url, rng, counts)


def sample(server: TritonServer) -> dict[str, float]:
    """Bytes of memory by process, of shared memory, and threads."""
    process = psutil.Process(server.pid)
    children = process.children(recursive=True)
    bls_process = next(c for c in children if any("speculative_bls/1" in word for word in c.cmdline()))
    return {
        "BLS": bls_process.memory_info().rss - bls_process.memory_info().shared,
        "server": process.memory_info().rss - process.memory_info().shared,
        "shared memory": sum(path.stat().st_size for path in Path("/dev/shm").glob(f"{server.shm_prefix}*")),
        "threads": bls_process.num_threads() + process.num_threads(),
    }


def grown(samples: list[dict[str, float]]) -> list[str]:
    """What is larger in the second half than in the first, once all is warm (after a fifth)."""
    warm = samples[len(samples) // 5 :]
    halves = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    found = []
    for name in warm[0]:
        first, second = (max(each[name] for each in half) for half in halves)
        if second > first * (1 + GROWTH) and second - first > (SLACK if name != "threads" else 4):
            found.append(f"{name}: {first:.3g} -> {second:.3g}")
    return found


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 120.0,
    streams: Annotated[int, typer.Option(help="Requests at once.")] = 16,
) -> None:
    """Mixed load, with memory, shared memory and threads watched."""
    counts, samples = Counts(), []
    with tempfile.TemporaryDirectory() as folder:
        made = bls.repository(Path(folder), "stand-in", max_engine_rows=64, adaptive=True)
        with TritonServer(made) as server, ThreadPoolExecutor(streams) as threads:
            end = time.monotonic() + 60 * minutes
            loads = [threads.submit(load, server.grpc_url, seed, end, counts) for seed in range(streams)]
            while time.monotonic() < end:
                time.sleep(min(60.0, max(1.0, 3 * minutes)))
                samples.append(sample(server))
                figures = ", ".join(
                    f"{name} {value if name == 'threads' else value / 1e6:.0f}" for name, value in samples[-1].items()
                )
                ends = f"{counts.answered} answered, {counts.refused} refused, {counts.left} left"
                console.print(f"{len(samples):4}  {ends}; {figures}")
            for each in loads:
                each.result()
    if problems := grown(samples):
        console.print(f"[red]grew: {'; '.join(problems)}")
        raise typer.Exit(1)
    console.print("nothing grew")


if __name__ == "__main__":
    typer.run(main)
