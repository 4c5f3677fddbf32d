"""Pages of a pod over time: the figures of the window that ends with the last."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.metrics.telemetry.exposition import parse
from tandem.metrics.telemetry.figures import Figures, Histogram, PodFigures
from tandem.metrics.telemetry.page import MAX_SERIES, Page, Series
from tandem.metrics.telemetry.windows import MAX_SAMPLES, Store
from tandem_serving import metrics as m
from unit.metrics.telemetry.metrics_pages import PageSink

DRAFTS, DRAFTED = "tandem_spec_decode_num_drafts_total", "tandem_spec_decode_num_draft_tokens_total"
ACCEPTED, TOKENS = "tandem_spec_decode_num_accepted_tokens_total", "tandem_generation_tokens_total"
POSITION = "tandem_spec_decode_num_accepted_tokens_per_pos_total"
RUNNING, WAITING = "tandem_requests_running", "tandem_requests_waiting"
FIRST = "tandem_time_to_first_token_seconds"
INF = float("inf")


def buckets(*upto: float, total: float | str) -> str:
    """A histogram of the bounds 0.5 s, 1 s and infinity."""
    lines = [f'{FIRST}_bucket{{le="{le}"}} {n}\n' for le, n in zip(("0.5", "1", "+Inf"), upto, strict=True)]
    return "".join(lines) + f"{FIRST}_sum {total}\n"


def lines(**values: float | str) -> str:
    names = {"rounds": DRAFTS, "drafted": DRAFTED, "accepted": ACCEPTED, "tokens": TOKENS, "running": RUNNING}
    return "".join(f"{names[name]} {value}\n" for name, value in values.items())


def engine(blocks: int, used: int, requests: int) -> str:
    """The target's."""
    numbers = {"max": blocks, "used": used}
    kv = "".join(
        f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="tensorrt_llm"}} {number}\n'
        for kind, number in numbers.items()
    )
    return kv + f'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="active"}} {requests}\n'


# Pages, 15 s apart, and what they come to.
WINDOWS: dict[str, tuple[list[str], dict[str, Any] | None]] = {
    "one page says nothing of a counter": ([lines(tokens=5)], None),
    "what was counted between the first and the last": (
        [lines(rounds=10, drafted=40, accepted=30), lines(rounds=15, drafted=60, accepted=40)],
        {"rounds": 5, "draft_tokens": 20, "accepted_tokens": 10},
    ),
    "nothing was counted: 0, as somebody told so": ([lines(tokens=5)] * 3, {"tokens": 0}),
    "a gauge is its mean": ([lines(running=n) for n in (2, 3, 7)], {"running": 4}),
    "a restart: counted from 0 on": (
        [lines(tokens=100), lines(tokens=110), lines(tokens=4), lines(tokens=9)],
        {"tokens": 10 + 9},
    ),
    "two restarts": ([lines(tokens=n) for n in (100, 3, 2)], {"tokens": 5}),
    "a restart: a counter that is past its old value already counts from 0, too": (
        [lines(tokens=100, accepted=2), lines(tokens=40, accepted=30)],
        {"tokens": 40, "accepted_tokens": 30},
    ),
    "a restart: what the new server has not counted yet was 0 there": (
        [lines(tokens=100, rounds=9), lines(tokens=4), lines(tokens=8, rounds=2)],
        {"tokens": 8, "rounds": 2},
    ),
    "a counter that is gone: a restart, though what others count is past its old value": (
        [lines(tokens=100, rounds=9), lines(tokens=200), lines(tokens=210, rounds=2)],
        {"tokens": 210, "rounds": 2},
    ),
    "a counter that comes later was 0 before": (
        [lines(tokens=100), lines(tokens=140, rounds=9)],
        {"tokens": 40, "rounds": 9},
    ),
    "a counter that was NaN before is not": (
        [lines(tokens=100, rounds="NaN"), lines(tokens=140, rounds=900)],
        {"tokens": 40},
    ),
    "NaN at the end: unknown, never 0": ([lines(tokens=1, rounds=5), lines(tokens=1, rounds="NaN")], {"tokens": 0}),
    "NaN in between is bridged": (
        [lines(tokens=1, rounds=5), lines(tokens=1, rounds="NaN"), lines(tokens=1, rounds=9)],
        {"tokens": 0, "rounds": 4},
    ),
    "NaN while the server restarts": (
        [lines(tokens=9, rounds=50), lines(tokens=2, rounds="NaN"), lines(tokens=3, rounds=60)],
        {"tokens": 3, "rounds": 60},
    ),
    "a gauge that is NaN once is the mean of the others": (
        [lines(tokens=1, running=n) for n in (2, "NaN", 4)],
        {"tokens": 0, "running": 3},
    ),
    "what an engine tells are gauges: their means": (
        [lines(tokens=1) + engine(40, used, requests) for used, requests in ((0, 0), (12, 3), (24, 6))],
        {"tokens": 0, "kv_blocks": 40, "kv_blocks_used": 12, "engine_requests": 3},
    ),
    "positions; one that comes later was 0": (
        [
            f'{POSITION}{{position="0"}} 5\n',
            f'{POSITION}{{position="0"}} 9\n{POSITION}{{position="2"}} 1\n',
        ],
        {"positions": (4, 0, 1)},
    ),
    "a histogram": (
        [buckets(1, 2, 2, total=1.0), buckets(3, 5, 6, total=7.5)],
        {"first": Histogram((0.5, 1, INF), (2, 1, 1), 6.5)},
    ),
    "a histogram that comes later was empty": (
        [lines(tokens=1), lines(tokens=2) + buckets(3, 5, 6, total=7.5)],
        {"tokens": 1, "first": Histogram((0.5, 1, INF), (3, 2, 1), 7.5)},
    ),
    "a scrape between two buckets of one observation": (
        [buckets(0, 0, 0, total=0), buckets(1, 0, 0, total=0)],
        {"first": Histogram((0.5, 1, INF), (1, 0, 0), 0)},
    ),
    "a histogram without its last bucket is none": (
        [lines(tokens=1), lines(tokens=1) + f'{FIRST}_bucket{{le="0.5"}} 1\n{FIRST}_sum 1\n'],
        {"tokens": 0},
    ),
    "a histogram without its sum is none": (
        [lines(tokens=1), lines(tokens=1) + f'{FIRST}_bucket{{le="+Inf"}} 1\n'],
        {"tokens": 0},
    ),
    "a histogram with a sum that is NaN is none": (
        [buckets(1, 2, 2, total=1.0) + lines(tokens=1), buckets(3, 5, 6, total="NaN") + lines(tokens=1)],
        {"tokens": 0},
    ),
}
FIELDS = {"tokens": "generation_tokens", "first": "time_to_first_token", "positions": "accepted_per_position"}


@pytest.mark.parametrize(("pages", "expected"), WINDOWS.values(), ids=WINDOWS.keys())
def test_figures(pages: list[str], expected: dict[str, Any] | None) -> None:
    store = Store(300)
    for number, page in enumerate(pages):
        store.add("pod", 15.0 * number, parse(page.encode()))
    end = 15.0 * (len(pages) - 1)
    if expected is None:
        assert store.figures(["pod"], end, 60) == Figures(end, (), unknown=1)
        return
    wanted = PodFigures(seconds=end, **{FIELDS.get(name, name): value for name, value in expected.items()})
    assert store.figures(["pod"], end, 60) == Figures(end, (wanted,))


STUCK: dict[str, tuple[list[str], bool]] = {
    "the page stands still, and sequences run": ([lines(tokens=99, running=20)] * 5, True),
    "its gauges are told, and no token is made": ([lines(tokens=99, running=n) for n in (20, 21, 9, 1, 1)], True),
    "a token was made": ([lines(tokens=99 + n // 4, running=20) for n in range(5)], False),
    "nothing runs": ([lines(tokens=99, running=0)] * 5, False),
    "the first requests after a rest": ([lines(tokens=99, running=n) for n in (0, 0, 0, 0, 20)], False),
    "a sequence at times": ([lines(tokens=99, running=n) for n in (1, 1, 0, 1, 1)], False),
    "not for a whole window: a long prompt": ([lines(tokens=99, running=20)] * 4, False),
    "it does not tell tokens": ([lines(rounds=99, running=20)] * 5, False),
    "it does not tell what runs": ([lines(tokens=99)] * 5, False),
    "what ran was not usable once": ([lines(tokens=99, running=n) for n in (20, 20, "NaN", 20, 20)], False),
    "it does not tell drafts, as TensorRT-LLM 1.2": (
        [lines(tokens=24 * n, rounds=10 * n, accepted=14 * n, running=20) for n in range(5)],
        False,
    ),
}


@pytest.mark.parametrize(("pages", "stuck"), STUCK.values(), ids=STUCK.keys())
def test_a_pod_whose_sequences_get_no_token_is_unknown(pages: list[str], stuck: bool) -> None:
    """It looks idle else: its replicas would go while its clients wait."""
    store = Store(60)
    for number, page in enumerate(pages):
        store.add("pod", 15.0 * number, parse(page.encode()))
    figures = store.figures(["pod"], 15.0 * (len(pages) - 1), 60)
    assert (len(figures.pods), figures.unknown) == ((0, 1) if stuck else (1, 0))
    assert figures.stuck == (frozenset({"pod"}) if stuck else frozenset())


def figures_of(times: list[float], at: float, window: float = 60.0) -> tuple[float, float | None] | None:
    """Seconds and tokens of a pod that counts a token a second and is read at these times."""
    store = Store(300)
    for time in times:
        store.add("pod", time, Page({Series(TOKENS): time}))
    pods = store.figures(["pod"], at, window).pods
    return (pods[0].seconds, pods[0].generation_tokens) if pods else None


CLOCKS: dict[str, tuple[list[float], float, tuple[float, float] | None]] = {
    "what is older than the window does not count": ([0, 100, 115, 130], 130, (30, 30)),
    "a young pod covers less": ([120, 130], 130, (10, 10)),
    "a pod that was not read lately": ([0, 15], 100, None),
    "only one sample within the window": ([0, 15, 130], 130, None),
    "one moment twice is one sample": ([130, 130], 130, None),
    "the clock is set forward: two new samples first": ([0, 15, 3600], 3600, None),
    "the clock is set back: known from there on": ([3600, 3615, 100, 115], 115, (15, 15)),
    "the clock is set back a little: known from there on": ([100, 115, 130, 110, 125], 125, (15, 15)),
    "the clock is set back and the pod not read since": ([3600, 3615], 100, None),
    "the source's clock is a little ahead": ([100, 115, 131], 130, (31, 31)),
}


@pytest.mark.parametrize(("times", "at", "expected"), CLOCKS.values(), ids=CLOCKS.keys())
def test_clocks(times: list[float], at: float, expected: tuple[float, float] | None) -> None:
    assert figures_of(times, at) == expected


EDGES: dict[str, tuple[list[float], float, float]] = {
    "by a hair longer ago than the window": ([0, 15.01, 30.02, 45.03, 60.04], 60.05, 60.04),
    "read late then, so by a hair within it": ([0.1, 15.01, 30.02, 45.03, 60.04], 60.05, 59.94),
    "judged when all others were read": ([0, 15, 30, 45, 60], 70, 60),
    "every 30 s, by a Prometheus": ([0, 30, 60, 90], 119, 60),
    "one reading failed": ([0, 15, 30, 60, 75], 75, 75 - 15),
    "that of the begin failed: the one nearest to it": ([0, 31, 46, 61, 76], 76, 45),
}


@pytest.mark.parametrize(("times", "at", "expected"), EDGES.values(), ids=EDGES.keys())
def test_windows_of_pods_that_are_read_alike_are_equally_long(times: list[float], at: float, expected: float) -> None:
    assert figures_of(times, at) == pytest.approx((expected, expected))


def test_pods_are_counted_apart_and_those_that_were_not_read_are_unknown() -> None:
    store = Store(300)
    for at in (0.0, 10.0):
        store.add("a", at, Page({Series(TOKENS): at}))
        store.add("b", at, Page({Series(TOKENS): 5 * at}))
        store.add("not-ready", at, Page({Series(TOKENS): 100 * at}))
    figures = store.figures(["a", "b", "silent"], 10, 60)
    assert (figures.sum("generation_tokens"), figures.rate("generation_tokens")) == (60, 6)
    assert (len(figures.pods), figures.unknown) == (2, 1)
    store.keep({"b"})
    assert store.figures(["a", "b"], 10, 60) == replace(figures, pods=figures.pods[1:], unknown=1)
    assert (store.latest("a"), store.latest("b")) == (None, 10)


def test_what_a_pod_costs_is_bounded() -> None:
    store = Store(seconds=60)
    for number in range(2 * MAX_SAMPLES):
        # A hostile pod: other labels at every scrape.
        bounds = {Series(FIRST, "bucket", 1 + number + i / 1000): 1.0 for i in range(MAX_SERIES // 2)}
        store.add("hostile", number / 100, Page(bounds))
        store.add("eager", number / 100, Page({Series(TOKENS): 1}))
        store.add("pod", float(number), Page({Series(TOKENS): 1}))
    pods = store._pods
    assert len(pods["hostile"].totals) <= 2 * MAX_SERIES
    assert len(pods["eager"].samples) == MAX_SAMPLES
    assert len(pods["pod"].samples) == 62


def test_an_engine_that_does_not_tell_what_it_drafts_has_a_length_and_no_rate() -> None:
    """TensorRT-LLM 1.2's PyTorch flow: rounds are the engine's iterations, accepted the tokens beyond one each."""
    counted, sink, store = m.Metrics(m.ALWAYS), PageSink(), Store(300)
    for at in (0.0, 15.0):
        counted.flush(sink)
        store.add("pod", at, parse(sink.page()))
        for family, value in ((m.DRAFTS, 10), (m.ACCEPTED, 14), (m.GENERATION_TOKENS, 24)):
            counted.add(family, value)
    counted.flush(sink)
    store.add("pod", 30.0, parse(sink.page()))
    figures = store.figures(["pod"], 30, 60)
    assert figures.mean_accepted_length == pytest.approx(2.4)
    assert figures.acceptance_rate is None
    assert figures.draft_length is None
    assert figures.pods[0].draft_tokens is None


RATIOS: dict[str, tuple[list[PodFigures], tuple[float | None, float | None, float | None]]] = {
    "all tell": (
        [PodFigures(15, rounds=10, draft_tokens=40, accepted_tokens=20)] * 2,
        (0.5, 3.0, 4.0),
    ),
    "only those count that tell both: a rollout to an engine that tells": (
        [
            PodFigures(15, rounds=10, draft_tokens=40, accepted_tokens=20),
            PodFigures(15, rounds=10, accepted_tokens=40),
        ],
        (0.5, 4.0, 4.0),
    ),
    "nothing was drafted": ([PodFigures(15, rounds=0, draft_tokens=0, accepted_tokens=0)], (None, None, None)),
    "nobody": ([], (None, None, None)),
    "a scrape in the middle of a round": (
        [PodFigures(15, rounds=10, draft_tokens=40, accepted_tokens=41)],
        (1.0, 5.1, 4.0),
    ),
}


@pytest.mark.parametrize(("pods", "expected"), RATIOS.values(), ids=RATIOS.keys())
def test_ratios(pods: list[PodFigures], expected: tuple[float | None, ...]) -> None:
    figures = Figures(0, tuple(pods))
    ratios = (figures.acceptance_rate, figures.mean_accepted_length, figures.draft_length)
    assert ratios == pytest.approx(expected)


def test_a_pod_of_other_buckets_does_not_hide_the_others() -> None:
    odd, usual = Histogram((7, INF), (1, 1), 5), Histogram((0.5, 1, INF), (2, 1, 1), 6.5)
    pods = [PodFigures(15, time_to_first_token=h) for h in (odd, usual, usual)]
    assert Figures(0, tuple(pods)).histogram("time_to_first_token") == Histogram((0.5, 1, INF), (4, 2, 2), 13)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=2, max_size=20))
def test_restarts_never_make_more_of_it_and_lose_only_what_cannot_be_seen(steps: list[tuple[int, bool]]) -> None:
    """Steps: tokens counted since the scrape before, and whether the server restarted before counting them."""
    store, values, counted, seen = Store(1000), [0], 0, True
    for number, (tokens, restarts) in enumerate(steps):
        values.append(tokens if restarts else values[-1] + tokens)
        store.add("pod", float(number), Page({Series(TOKENS): values[-1]}))
        if number:
            counted += tokens
            seen &= not restarts or values[-1] < values[-2] or values[-2] == 0
    (pod,) = store.figures(["pod"], len(steps), 1000).pods
    assert pod.generation_tokens is not None
    assert 0 <= pod.generation_tokens <= counted
    if seen:
        assert pod.generation_tokens == counted
