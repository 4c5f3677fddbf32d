"""The command: see the package."""

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.gpu.served import own_triton  # noqa: F401 - before what needs it

# isort: split
import yaml

from bench.bls import client
from bench.gpu.served import prompts
from bench.gpu.served.checkpoints import checkpoints_in
from bench.gpu.served.load import Window
from bench.gpu.served.measure import Bench
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.ways import LLM_API, Case
from bench.gpu.vllm.tables import DIRECT, TRITON, Row, line, tables
from bench.gpu.vllm.ways import Direct, direct
from support import environments
from tandem.api.roles import Role
from tandem_serving.requests.tokenizer import Tokenizer
from triton import vllm_server
from triton.bls_client import PAIR
from triton.harness import Options, TritonServer

METHODS: Mapping[str, dict[str, Any]] = {
    "none": {"decodingType": "None"},
    "draft_model": {"decodingType": "DraftTarget", "maxDraftLen": 4},
    "ngram": {"decodingType": "NGram", "maxDraftLen": 4},
}
"""`spec.speculation`, by vLLM's names of what drafts."""
KINDS = {
    f"{words}, {prompts} prompts": Case(words, LLM_API, sampled=words == "sampled", new_prompts=prompts == "new")
    for words in ("greedy", "sampled")
    for prompts in ("known", "new")
}
TWO_ON_A_GPU = {"gpu_memory_utilization": 0.35, "kv_cache_memory_bytes": 8 << 30, "max_model_len": 1024}
WARM_UP = 1.5  # seconds of each number of streams before all windows


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.vllm", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, default=PAIR, help="folder of target/ and draft/")
    parser.add_argument("--profile", default="vllm-26.08", help="whose arguments are rendered")
    parser.add_argument("--arguments", type=json.loads, default=TWO_ON_A_GPU, help="runtime.extraLlmArgs, as JSON")
    parser.add_argument("--gpus", type=int, default=1, help="tensor parallelism of the target and of the draft")
    parser.add_argument("--lock", type=Path, help="a lock of packages with vLLM, where this Python has none")
    parser.add_argument("--prompts", type=Path, default=PAIR / "prompts.jsonl", help='lines with a field "prompt"')
    parser.add_argument("--context", type=int, default=400, help="tokens of each prompt; 0: as they are")
    parser.add_argument("--known", type=int, default=64, help="prompts that are sent again and again")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--seconds", type=float, default=2.2, help="length of each window")
    parser.add_argument("--warm-up", type=float, default=0.8, help="seconds of load before a window")
    parser.add_argument("--repeats", type=int, default=2, help="windows of each case each way, in turns")
    parser.add_argument("--load", type=Path, help="the load program, built already")
    parser.add_argument("--about", type=json.loads, default={}, help="JSON object for the head of the file")
    parser.add_argument("--out", type=Path, default=Path("build/vllm.json"))
    return parser.parse_args()


def service(options: argparse.Namespace, method: str) -> str:
    """The resource whose arguments both ways have."""
    spec = {
        "runtime": {"mode": "LLMAPI", "profile": options.profile, "extraLlmArgs": options.arguments},
        "target": {"model": {"uri": "file:///target"}, "tensorParallelSize": options.gpus},
        "speculation": METHODS[method],
        "serving": {"maxBatchSize": max(options.streams)},
    }
    if method == "draft_model":
        spec["draft"] = {"model": {"uri": "file:///draft"}, "tensorParallelSize": options.gpus}
    head = {"apiVersion": "serving.tandem.dev/v1alpha1", "kind": "SpeculativeInferenceService"}
    return yaml.safe_dump({**head, "metadata": {"name": "bench", "namespace": "default"}, "spec": spec})


@contextmanager
def running(folder: Path, options: argparse.Namespace, method: str, program: Path) -> Iterator[dict[str, Any]]:
    """Both ways to vLLM with this method, started together."""
    folder.mkdir()
    roles = (Role.TARGET, Role.DRAFT) if method == "draft_model" else (Role.TARGET,)
    folders = {role: str((options.checkpoints / role.value).resolve()) for role in roles}
    made, variables = vllm_server.repository(folder, service(options, method), folders)
    arguments = yaml.safe_load(made.with_name(f"{made.name}-llm_args.yaml").read_text())
    python = environments.python(options.lock.resolve()) if options.lock else Path(sys.executable)
    packages = environments.packages(python) if options.lock else None
    server = TritonServer(made, Options(env=variables, packages=packages, alone=False))
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        starting = threads.submit(stack.enter_context, server)
        called = stack.enter_context(direct(python, arguments, variables))
        starting.result()
        print(f"{method}: both are ready; {arguments}", flush=True)
        yield {DIRECT: called, TRITON: Bench(server, {}, program)}


def rows(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Measure method by method: a row for each window."""
    kinds = {name: KINDS[name] for name in options.kinds}
    program = options.load.resolve() if options.load else client.build(folder)
    for method in options.methods:
        sources = prompts.sources(options, Tokenizer(PAIR / "target"), new_ones=True)
        with running(folder / method, options, method, program) as ways:
            _warm_up(ways, kinds.values(), next(sources[False]), options)
            for name, case in kinds.items():
                for streams in [each for _ in range(options.repeats) for each in options.streams]:
                    window = Window(streams, options.warm_up, options.seconds, options.max_tokens)
                    given = next(sources[case.new_prompts])
                    for way, bench in ways.items():
                        figures = bench.run(case, given, window)
                        yield {"method": method, "kind": name, "way": way, **figures, "streams": streams}


def _warm_up(
    ways: Mapping[str, Direct | Bench],
    cases: Iterable[Case],
    known: list[Prompt],
    options: argparse.Namespace,
) -> None:
    """What a first call takes is no part of a window."""
    with ThreadPoolExecutor(len(ways)) as threads:
        for sampled in sorted({case.sampled for case in cases}):
            case = Case("warm-up", LLM_API, sampled=sampled)
            for streams in sorted(options.streams):
                window = Window(streams, 0.0, WARM_UP, options.max_tokens)
                list(threads.map(lambda bench, w=window, c=case: bench.run(c, known, w), ways.values()))


def main() -> None:
    """Measure, and write after each window what there is."""
    options = parse()
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "arguments": options.arguments,
        **options.about,
        **checkpoints_in(options.checkpoints),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for row in rows(options, Path(name)):
            found.append(row)
            print(line(row), flush=True)
            options.out.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")
    print(tables(found))


if __name__ == "__main__":
    main()
