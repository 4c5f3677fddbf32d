"""What speculation gives, and what the BLS costs, on the real Triton server on this machine.

    PYTHONPATH=tests:operator python tests/bench/speculation.py [--engine stand-in] [--streams 1 8]

Prints medians over repeated runs, as ratios to the target alone in the same run: absolute figures
depend on the machine. The stand-in engine computes nothing, so there the time of a round is all overhead.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from triton import bls_client as bls
from triton.harness import TritonServer


@dataclass(frozen=True)
class Run:
    """One run: wall seconds, tokens, rounds, draft tokens, accepted ones, CPU seconds of the BLS process."""

    seconds: float
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    cpu: float


def run(server: TritonServer, prompts: Sequence[str], k: int, streams: int, max_tokens: int) -> Run:
    """Generate for all prompts, `streams` at once, with draft length k."""
    process = bls_process(server)
    cpu, start = cpu_seconds(process), time.perf_counter()
    with ThreadPoolExecutor(streams) as threads:
        tensors = [bls.inputs(p, max_tokens=max_tokens, num_draft_tokens=k, stream=True) for p in prompts]
        answers = list(threads.map(lambda each: bls.stream(server.grpc_url, each), tensors))
    seconds = time.perf_counter() - start
    ends = [chunks[-1] for chunks in answers]
    return Run(
        seconds,
        sum(end["num_output_tokens"].item() for end in ends),
        sum(len(chunks) for chunks in answers),
        sum(end["total_draft_tokens"].item() for end in ends),
        sum(end["total_accepted_draft_tokens"].item() for end in ends),
        cpu_seconds(process) - cpu,
    )


def bls_process(server: TritonServer) -> psutil.Process:
    """The Python process of the speculative BLS."""
    children = psutil.Process(server.pid).children(recursive=True)
    return next(child for child in children if any("speculative_bls/1" in word for word in child.cmdline()))


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def row(k: int, runs: list[Run], base: float) -> str:
    """A line of the table; `base` is the target's tokens/s alone."""
    speed = statistics.median(run.tokens / run.seconds for run in runs)
    last = runs[-1]
    length = f"{last.tokens / last.rounds:.2f}"
    rate = f"{last.accepted / last.drafted:.0%}" if last.drafted else "-"
    cpu = statistics.median(run.cpu / run.rounds for run in runs) * 1e6
    wall = statistics.median(run.seconds / run.rounds for run in runs) * 1e6
    return f"{k:>2} {speed:>10.1f} {speed / base:>8.2f} {length:>12} {rate:>11} {wall:>13.0f} {cpu:>12.0f}"


def measure(server: TritonServer, options: argparse.Namespace, streams: int) -> None:
    """Print the table for one number of streams."""
    lines = (bls.PAIR / "prompts.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines[: options.prompts]]
    lengths = [0, *options.draft_lengths]
    runs: dict[int, list[Run]] = {k: [] for k in lengths}
    for repeat in range(options.repeats + 1):  # the first one warms up
        for k in lengths:
            result = run(server, prompts, k, streams, options.max_tokens)
            if repeat:
                runs[k].append(result)
    base = statistics.median(run.tokens / run.seconds for run in runs[0])
    print(f"\n{streams} stream(s), {len(prompts)} prompts of up to {options.max_tokens} tokens", flush=True)
    print(" k   tokens/s    ratio tokens/round  acceptance  µs/round wall  BLS µs/round")
    for k in lengths:
        print(row(k, runs[k], base), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["reference", "stand-in"], default="reference")
    parser.add_argument("--streams", type=int, nargs="+", default=[1], help="requests at once")
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[2, 3, 4, 6], help="1..8")
    parser.add_argument("--prompts", type=int, default=8, help="held-out prompts of the pair, 32 at most")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3, help="runs behind each median")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository = bls.repository(Path(folder), options.engine, max_draft_len=8)
        print(f"starting Triton with the {options.engine} engine", flush=True)
        with TritonServer(repository) as server:
            for streams in options.streams:
                measure(server, options, streams)


if __name__ == "__main__":
    main()
