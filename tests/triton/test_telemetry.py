"""Figures from the real Triton's pages: they are what the responses said, each token counted once."""

import asyncio
import copy
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tandem.metrics.capacity.kv_cache import measure
from tandem.metrics.telemetry.figures import Figures, PodFigures
from tandem.metrics.telemetry.scrape import ScrapeLimits, Scraper
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from triton import bls_client as bls
from triton import llmapi_client as llmapi
from triton.bls_client import Response
from triton.harness import REPOSITORY_ROOT, Options, TritonServer
from triton.waits import eventually, metric

PAGE = REPOSITORY_ROOT / "tests/data/input/metrics/speculative_bls.txt"
"""A page of the real server, for tests and benchmarks without one."""
PROMPTS = [f"def area_{n}(width, height):\n" for n in range(6)]
TOKENS, K = 24, 4
PATIENT = ScrapeLimits(spread_seconds=0, seconds=60, connect_seconds=60)
LAG_SECONDS = 1.0
"""Models publish every half second, the engine's state every second; or later, where the machine stands still."""
MEANWHILE_SECONDS = 0.2
MOST_WORK = 20


@pytest.fixture(scope="module")
def speculative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls.repository(tmp_path_factory.mktemp("bls"), "reference", max_draft_len=K, max_engine_rows=64)
    with TritonServer(made) as server:
        yield server


@pytest.fixture(scope="module", params=["1.2", "1.3"])
def in_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Mode LLMAPI: n-grams in the engine, of which 1.2 does not tell what it drafts."""
    speculation = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 2}}
    arguments = {**speculation, "enable_iter_perf_stats": True}
    made = llmapi.repository(tmp_path_factory.mktemp("llmapi") / "models", arguments)
    with TritonServer(made, Options(env={"STAND_IN_VERSION": request.param})) as server:
        yield server


def figures_of(
    server: TritonServer, work: Callable[[], None], sequences: int, enough: Callable[[PodFigures], bool] | None = None
) -> PodFigures:
    """What scrapes before and after `work`, which runs so many sequences, say of its time.

    With `enough` every now and then meanwhile, too, and the work is done again until they say that. Whoever leaves
    waits until all that was done is published: the next one counts from there.
    """
    store, target = Store(600), ScrapeTarget("uid", "ns", "pod", "127.0.0.1", server.ports.metrics)
    done = 0

    def figures(of: Store) -> PodFigures:
        (pod,) = of.figures(["uid"], time.time(), 600).pods
        return pod

    async def read(into: Store) -> None:
        async with Scraper(PATIENT) as scraper:
            assert await scraper.collect([target], into) == {}

    asyncio.run(read(store))
    with ThreadPoolExecutor(1) as worker:
        while not done or (enough and not enough(figures(store))):
            assert done < MOST_WORK * sequences, figures(store)
            working = worker.submit(work)
            while enough:
                time.sleep(MEANWHILE_SECONDS)
                asyncio.run(read(store))
                if working.done():
                    break
            working.result()
            done += sequences
    for _ in range(30):
        time.sleep(LAG_SECONDS)
        last = copy.deepcopy(store)  # gauges are means: a page that came too early must not stay among them
        asyncio.run(read(last))
        pod = figures(last)
        told = pod.request_latency is not None and pod.request_latency.count == done  # published last of all
        if told and (enough or not pod.running) and not metric(server, "tandem_requests_running"):
            return pod
    raise AssertionError(f"{done} sequences are never told of: {pod}")


def of_its_cache(pod: PodFigures) -> bool:
    """Whether the engine was found at work often enough to tell what a request holds."""
    return measure(Figures(0, (pod,)), newcomers=0) is not None


def tokens_of(answers: list[Response]) -> int:
    return int(sum(answer["num_output_tokens"].item() for answer in answers))


def test_speculative_bls(speculative: TritonServer) -> None:
    said: list[Response] = []

    def work() -> None:
        url = speculative.grpc_url
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            for answers in threads.map(
                lambda text: bls.stream(url, bls.inputs(text, max_tokens=TOKENS, stream=True)), PROMPTS[:3]
            ):
                said.append(answers[-1])
            # The forwarder in front of the BLS: one request, two models.
            said.extend(threads.map(lambda text: bls.unary(url, bls.inputs(text, max_tokens=TOKENS)), PROMPTS[3:]))

    figures = figures_of(speculative, work, len(PROMPTS))
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(speculative.metrics())
    tokens = tokens_of(said)
    assert figures.generation_tokens == tokens == TOKENS * len(PROMPTS)
    assert figures.draft_tokens == sum(answer["total_draft_tokens"].item() for answer in said)
    assert figures.accepted_tokens == sum(answer["total_accepted_draft_tokens"].item() for answer in said)
    assert figures.accepted_tokens == sum(figures.accepted_per_position) > 0
    assert figures.prompt_tokens == sum(answer["num_input_tokens"].item() for answer in said)
    assert figures.rounds is not None
    assert 0 < figures.rounds <= tokens
    counts = [h.count for h in (figures.time_to_first_token, figures.request_latency) if h]
    assert counts == [len(PROMPTS), len(PROMPTS)]
    assert figures.inter_token_latency is not None
    assert 0 < figures.inter_token_latency.count <= tokens
    assert (figures.running, figures.waiting, figures.draft_failures) == (0, 0, 0)


def test_the_kv_cache_of_the_target_s_engine(speculative: TritonServer) -> None:
    """A page is read at any moment of a round, and the engine has no request while the draft's works: what its
    requests hold, for every sequence."""

    def work() -> None:
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            list(threads.map(lambda text: bls.unary(speculative.grpc_url, bls.inputs(text, max_tokens=200)), PROMPTS))

    kind = 'tandem_engine_kv_cache_block_metrics{kv_cache_block_type="%s",model="tensorrt_llm_engine",version="1"}'
    pod = figures_of(speculative, work, len(PROMPTS), of_its_cache)
    eventually(lambda: metric(speculative, kind % "used") == 0, "the engine tells that it holds nothing")
    lines = [line.rsplit(" ", 1) for line in speculative.metrics().splitlines() if not line.startswith("#")]
    engine = {series: float(value) for series, value in lines}
    assert pod.kv_blocks == engine[kind % "max"] == engine[kind % "free"] > 0
    assert pod.engine_requests
    cache = measure(Figures(0, (pod,)), newcomers=0)
    assert cache is not None
    assert pod.running is not None
    longest = -(-(200 + max(map(len, PROMPTS))) // engine[kind % "tokens_per"])
    assert 0 < cache.held / pod.running <= longest


def test_an_engine_that_speculates_itself(in_engine: TritonServer, request: pytest.FixtureRequest) -> None:
    said: list[Response] = []

    def work() -> None:
        for text in PROMPTS[:3]:
            said.append(bls.unary(in_engine.grpc_url, llmapi.inputs(text), "tensorrt_llm"))

    pod = figures_of(in_engine, work, 3)
    tokens = tokens_of(said)
    assert pod.generation_tokens == tokens
    figures = Figures(0, (pod,))
    assert pod.rounds is not None
    assert figures.mean_accepted_length == pytest.approx(tokens / pod.rounds)
    tells = "1.3" in request.node.name
    assert (pod.draft_tokens is not None) == tells
    assert (figures.acceptance_rate is not None) == tells
    assert pod.accepted_per_position == ()
    assert (pod.running, pod.waiting) == (0, 0)


def test_the_kv_cache_of_an_engine_that_tells_of_its_iterations(in_engine: TritonServer) -> None:
    def work() -> None:
        bls.unary(in_engine.grpc_url, llmapi.inputs(*PROMPTS, max_tokens=200), "tensorrt_llm")

    pod = figures_of(in_engine, work, len(PROMPTS), of_its_cache)
    assert pod.kv_blocks
    assert pod.engine_requests
    cache = measure(Figures(0, (pod,)), newcomers=0)
    assert cache is not None
    assert 0 < cache.held < cache.blocks == pod.kv_blocks


def test_the_page_that_others_use_is_this_server_s(speculative: TritonServer) -> None:
    """`UPDATE_GOLDENS=1` writes it again."""

    def names(page: str) -> set[str]:
        # A server that has run for minutes has probed.
        lines = [line for line in page.splitlines() if not line.startswith(("#", "tandem_probe_"))]
        return {line.split(" ")[0].split("{")[0] for line in lines}

    # Series appear once there is something to count.
    for prompt in PROMPTS:
        bls.stream(speculative.grpc_url, bls.inputs(prompt, max_tokens=TOKENS, stream=True))
        bls.unary(speculative.grpc_url, bls.inputs(prompt, max_tokens=TOKENS))
    eventually(lambda: names(speculative.metrics()) >= names(PAGE.read_text()), "all series of the page")
    assert names(PAGE.read_text()) == names(speculative.metrics())
