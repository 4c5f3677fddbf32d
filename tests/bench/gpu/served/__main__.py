"""The command: see the package."""

import argparse
import datetime
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.gpu.served.own_triton import TESTS

# isort: split
from bench.bls import client
from bench.gpu.served import aiperf, prompts, report, servers
from bench.gpu.served.checkpoints import checkpoints_in
from bench.gpu.served.load import Window
from bench.gpu.served.repository import ROLES, Engines
from bench.gpu.served.ways import CASES, LLM_API, LONGEST, Case
from tandem_serving.requests.tokenizer import Tokenizer
from triton.bls_client import PAIR

WARM_UP = 1.5  # seconds of each number of streams before all windows
LEARNING = 4.0  # times as long as others an adaptive draft length runs before its window


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.served", description=__doc__)
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=PAIR,
        help="folder of target/, draft/ and steps.json; made where it is not there",
    )
    parser.add_argument("--numpy", action="store_true", help="the numpy backend, on the CPU")
    parser.add_argument("--prompts", type=Path, default=PAIR / "prompts.jsonl", help='lines with a field "prompt"')
    parser.add_argument("--context", type=int, default=400, help="tokens of each prompt; 0: as they are")
    parser.add_argument("--max-seq-len", type=int, default=640, help="tokens of a sequence at most")
    parser.add_argument("--slots", type=int, default=144, help="sequences whose KV an engine keeps")
    parser.add_argument("--target-gpus", default="0", help="indices of the target's GPUs: over several it is split")
    parser.add_argument("--draft-gpu", type=int, default=0, help="index of the draft's GPU")
    parser.add_argument("--llm-api-gpu", type=int, default=0, help="index of the GPU of mode LLMAPI")
    parser.add_argument("--known", type=int, default=64, help="prompts that are sent again and again")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--cases", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--seconds", type=float, default=2.2, help="length of each window")
    parser.add_argument("--warm-up", type=float, default=0.8, help="seconds of load before a window")
    parser.add_argument("--repeats", type=int, default=1, help="windows of each case, one after all others")
    parser.add_argument("--in-a-row", type=int, default=1, help="windows in a row where the draft length is adaptive")
    parser.add_argument(
        "--aiperf", help="how AIPerf is called: alone and adaptive once more, through its chat endpoint"
    )
    parser.add_argument("--load", type=Path, help="the load program, built already")
    parser.add_argument("--about", type=json.loads, default={}, help="JSON object for the head of the file")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-bls.json"))
    return parser.parse_args()


def engines(options: argparse.Namespace) -> Engines:
    """As the command line has them."""
    common = {"backend": "numpy"} if options.numpy else {"backend": "torch", "kv_cache_bytes": str(1 << 40)}
    common |= {"max_seq_len": str(options.max_seq_len), "max_num_tokens": "1024"}
    common["max_num_sequences"] = str(options.slots)
    placed = {
        "target": {**common, "gpu_device_ids": options.target_gpus},
        "draft": {**common, "gpu_device_ids": str(options.draft_gpu)},
    }
    folders = {role: options.checkpoints / role for role in ROLES}
    return Engines(folders, placed, separate=options.draft_gpu > 0)


def rows(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Start the servers and run the cases."""
    cases = [CASES[name] for name in options.cases]
    sources = prompts.sources(options, Tokenizer(PAIR / "target"), new_ones=any(case.new_prompts for case in cases))
    program = options.load.resolve() if options.load else client.build(folder)
    with servers.running(folder, engines(options), cases, program, options.llm_api_gpu) as started:
        _warm_up(started, cases, next(sources[False]), options)
        for number, case, streams in itertools.product(range(options.repeats), cases, options.streams):
            if streams > case.most:
                continue
            adaptive = case.draft_len is None
            for turn in range(options.in_a_row if adaptive else 1):
                warm_up = options.warm_up * (LEARNING if adaptive and not number + turn else 1)
                window = Window(streams, warm_up, options.seconds, options.max_tokens)
                row = started.of(case).run(case, next(sources[case.new_prompts]), window)
                print(report.line(row), flush=True)
                yield row
        if options.aiperf:
            texts = [prompt.text for prompt in next(sources[False])]
            tokenizer = options.checkpoints / "target"
            yield from aiperf.rows(
                options.aiperf, started.bls.server, tokenizer, texts, options.streams, options.max_tokens
            )


def _warm_up(
    started: servers.Servers, cases: list[Case], known: list[prompts.Prompt], options: argparse.Namespace
) -> None:
    """What a first call takes is no part of a window."""
    llm_api = {case.draft_len: case for case in cases if case.way == LLM_API}
    for case in (Case("warm-up", "fixed", LONGEST), *llm_api.values()):
        for streams in sorted(options.streams):
            started.of(case).run(case, known, Window(streams, 0.0, WARM_UP, options.max_tokens))


def main() -> None:
    """Measure, and write after each case what there is: a run that is cut short loses one."""
    options = parse()
    about = {
        "command": shlex.join(["python", "-m", "bench.gpu.served", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        **options.about,
        **checkpoints_in(options.checkpoints),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for row in rows(options, Path(name)):
            found.append(row)
            options.out.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


def _commit() -> str:
    """The commit of this tree; empty: it has none here."""
    result = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=TESTS, capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


if __name__ == "__main__":
    main()
