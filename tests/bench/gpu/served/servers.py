"""The benchmark's servers: one of mode BLS, and one of mode LLMAPI for each of its draft lengths."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.bls.stub import Meter
from bench.gpu.served import repository
from bench.gpu.served.measure import Bench
from bench.gpu.served.repository import ROLES, Engines
from bench.gpu.served.ways import ENGINE, LLM_API, Case
from triton.harness import Options, TritonServer


@dataclass(frozen=True)
class Servers:
    """Where cases run: `bls`, and `llm_api` by its draft length."""

    bls: Bench
    llm_api: dict[int, Bench]

    def of(self, case: Case) -> Bench:
        """The server of a case."""
        return self.llm_api[case.draft_len or 0] if case.way == LLM_API else self.bls


@contextmanager
def running(folder: Path, engines: Engines, cases: Sequence[Case], program: Path, gpu: int) -> Iterator[Servers]:
    """Start what the cases need, all at once, and end it. The LLM API has both its models on `gpu`."""
    ways = {case.way for case in cases if case.way not in (ENGINE, LLM_API)} | {"fixed"}
    models = repository.build(folder, engines, sorted(ways))
    meters = {role: Meter(folder / f"{role}.meter") for role in ROLES}
    pool = 2 * repository.ROWS + 32
    options = Options(env={}, thread_pool_size=pool, alone=False)
    servers = [TritonServer(models, options)]
    lengths = sorted({case.draft_len or 0 for case in cases if case.way == LLM_API})
    for length in lengths:
        models = repository.build_llm_api(folder / f"llm-api-{length}", engines, length)
        servers.append(TritonServer(models, replace(options, env={"CUDA_VISIBLE_DEVICES": str(gpu)})))
    with ExitStack() as stack, ThreadPoolExecutor(len(servers)) as threads:
        for started in threads.map(stack.enter_context, servers):
            print(f"a server is ready at {started.grpc_url}", flush=True)
        benches = [Bench(server, meters if server is servers[0] else {}, program) for server in servers]
        yield Servers(benches[0], dict(zip(lengths, benches[1:], strict=True)))
