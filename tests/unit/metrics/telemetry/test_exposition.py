"""Pages of metrics: what is read of them, and which are none."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.metrics.telemetry import families
from tandem.metrics.telemetry.exposition import parse
from tandem.metrics.telemetry.page import MAX_SERIES, Page, PageError, Series
from tandem_serving import metrics as m
from unit.metrics.telemetry.metrics_pages import TRITON, PageSink

REAL = Path(__file__).parents[3] / "data/input/metrics/speculative_bls.txt"
DRAFTS = "tandem_spec_decode_num_drafts_total"
POSITION = "tandem_spec_decode_num_accepted_tokens_per_pos_total"
FIRST = "tandem_time_to_first_token_seconds"
RUNNING = "tandem_requests_running"


def engine(model: str, **kv: float | str) -> str:
    """An engine's own series."""
    line = f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="%s",model="{model}",version="1"}} %s\n'
    request = f'nv_trt_llm_request_metrics{{model="{model}",request_type="active",version="1"}} 6\n'
    return request + "".join(line % (kind, value) for kind, value in kv.items())


READ: dict[str, tuple[str, Page]] = {
    "a counter": (f"{DRAFTS} 7\n", Page({Series(DRAFTS): 7})),
    "a gauge": (f"{RUNNING} 3\n", Page(gauges={"running": 3})),
    "Triton's own series and comments are left out": (
        f"{TRITON}# HELP {DRAFTS} Rounds\n# TYPE {DRAFTS} counter\n{DRAFTS} 7\n# a comment\n\n",
        Page({Series(DRAFTS): 7}),
    ),
    "families that nobody asks for are left out": (
        f'{DRAFTS} 7\ntandem_draft_length 4\ntandem_of_tomorrow{{a="b"}} NaN\n{FIRST}_count 5\n',
        Page({Series(DRAFTS): 7}),
    ),
    "positions and bounds are numbers": (
        f'{POSITION}{{position="1"}} 5\n{FIRST}_bucket{{le="0.5"}} 2\n'
        f'{FIRST}_bucket{{le="+Inf"}} 3\n{FIRST}_sum 1.5\n',
        Page(
            {
                Series(POSITION, key=1): 5,
                Series(FIRST, "bucket", 0.5): 2,
                Series(FIRST, "bucket", float("inf")): 3,
                Series(FIRST, "sum"): 1.5,
            }
        ),
    ),
    "several models' series add up": (
        f'{DRAFTS}{{model="a",version="1"}} 7\n{DRAFTS}{{model="b",version="1"}} 5\n',
        Page({Series(DRAFTS): 12}),
    ),
    "the target's engine is read, of its numbers those that are asked for": (
        f"{RUNNING} 3\n{engine('tensorrt_llm', max=40, used=12, free=28, tokens_per=64)}",
        Page(gauges={"running": 3, "kv_blocks": 40, "kv_blocks_used": 12, "engine_requests": 6}),
    ),
    "the draft's engine is not, nor any other": (
        f"{RUNNING} 3\n{engine('tensorrt_llm_draft', max=40, used=12)}{engine('mine', max=9)}",
        Page(gauges={"running": 3}),
    ),
    "an engine's family with a bad number is unknown, all of it": (
        f"{RUNNING} 3\n{engine('tensorrt_llm', max=40, used='NaN')}",
        Page({}, {"running": 3, "engine_requests": 6}, {"nv_trt_llm_kv_cache_block_metrics"}),
    ),
    "braces and blanks in a label's value": (f'{DRAFTS}{{model="a }} {{ b"}} 7\n', Page({Series(DRAFTS): 7})),
    "a timestamp is left out": (f"{DRAFTS} 7 1700000000000\n", Page({Series(DRAFTS): 7})),
    "exponents": (f"{DRAFTS} 1.5e+3\n", Page({Series(DRAFTS): 1500})),
    "a counter without a number is unknown, the others are read": (
        f"{DRAFTS} NaN\n{RUNNING} 3\n",
        Page(gauges={"running": 3}, unknown={DRAFTS}),
    ),
    "a negative gauge is unknown": (f"{DRAFTS} 7\n{RUNNING} -1\n", Page({Series(DRAFTS): 7}, unknown={RUNNING})),
    "a counter beyond counting is unknown": (f"{DRAFTS} 1e300\n{RUNNING} 3\n", Page({}, {"running": 3}, {DRAFTS})),
    "infinity is unknown": (f"{DRAFTS} +Inf\n{RUNNING} 3\n", Page({}, {"running": 3}, {DRAFTS})),
    "one bad bucket makes its histogram unknown, its good ones too": (
        f'{FIRST}_bucket{{le="0.5"}} 2\n{FIRST}_bucket{{le="1"}} NaN\n{FIRST}_sum 3\n{RUNNING} 3\n',
        Page({}, {"running": 3}, {FIRST}),
    ),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_read(text: str, expected: Page) -> None:
    assert parse(text.encode()) == expected


REFUSED: dict[str, tuple[str, str]] = {
    "empty": ("", "none of Tandem's metrics are there"),
    "Triton without Tandem's models": (TRITON, "none of Tandem's metrics are there"),
    "nothing but unknown values": (f"{DRAFTS} NaN\n", "none of Tandem's metrics are there"),
    "an engine without Tandem's models": (engine("tensorrt_llm", max=40), "none of Tandem's metrics are there"),
    "HTML": ("\n <!DOCTYPE html><html>tandem_x 1</html>\n", "HTML or JSON"),
    "JSON": ('{"tandem_x": 1}\n', "HTML or JSON"),
    "a JSON list": ("[1]\n", "HTML or JSON"),
    "cut off": (f"{RUNNING} 3\n{DRAFTS} 70", "ends in the middle of a line"),
    "a word for a number": (f"{DRAFTS} seven\n", "'seven' is no number"),
    "no number at all": (f"{DRAFTS}\n", "'' is no number"),
    "a number only for Python": (f"{DRAFTS} 1_000\n", "'1_000' is no number"),
    "the same series twice": (f"{DRAFTS} 7\n{DRAFTS} 7\n", "is there twice"),
    "a counter that says it is a histogram": (
        f"# TYPE {DRAFTS} histogram\n{DRAFTS} 7\n",
        f"{DRAFTS} is of type 'histogram', not counter",
    ),
    "a gauge that says it is a counter": (
        f"# TYPE {RUNNING} counter\n{RUNNING} 1\n",
        "is of type 'counter', not gauge",
    ),
    "labels that never end": (f'{DRAFTS}{{model="a 7\n', "no number|no sample"),
    "labels without quotes": (f"{DRAFTS}{{model=a}} 7\n", "no sample of a metric"),
    "a label twice": (f'{DRAFTS}{{a="1",a="2"}} 7\n', "no sample of a metric"),
    "labels that are no text": (f'{DRAFTS}{{a="\udcff"}} 7\n', "no sample of a metric"),
    "endless labels": (f'{DRAFTS}{{a="{"x" * 300}"}} 7\n', "longer than 256 bytes"),
    "a position that is none": (f'{POSITION}{{position="first"}} 7\n', "position='first' is no position"),
    "a position in digits that are not ASCII": (f'{POSITION}{{position="٣"}} 7\n', "is no position"),
    "a position beyond any draft": (f'{POSITION}{{position="32"}} 7\n', "position='32' is no position"),
    "no position": (f"{POSITION} 7\n", "position='' is no position"),
    "a bound that is none": (f'{FIRST}_bucket{{le="soon"}} 7\n', "le='soon' is no upper bound"),
    "a bound that is no number": (f'{FIRST}_bucket{{le="NaN"}} 7\n', "le='NaN' is no upper bound"),
    "more series than anybody has": (
        "".join(f'{DRAFTS}{{a="{i}"}} 1\n' for i in range(MAX_SERIES + 1)),
        f"more than {MAX_SERIES} lines",
    ),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(PageError, match=reason):
        parse(text.encode(errors="surrogateescape"))


@given(st.binary(max_size=400))
@example(b'tandem_x{"}} 1\n')
@example(b"tandem_}\n")
def test_whatever_a_pod_sends_is_a_page_or_a_reason(tail: bytes) -> None:
    for text in (tail, f"{DRAFTS} 1\ntandem_".encode() + tail + b"\n", f"{POSITION}{{".encode() + tail + b"} 1\n"):
        try:
            page = parse(text)
        except PageError:
            continue
        assert all(0 <= value < float("inf") for value in (*page.counters.values(), *page.gauges.values()))


def test_all_families_are_those_that_the_models_publish() -> None:
    published = {value.name: value.kind for value in vars(m).values() if isinstance(value, m.Family)}
    read = dict.fromkeys((*families.COUNTERS, families.ACCEPTED_PER_POSITION), "counter")
    read |= dict.fromkeys((family for family, _ in families.OWN_GAUGES), "gauge")
    read |= dict.fromkeys(families.HISTOGRAMS, "histogram")
    for_people = {"tandem_draft_length": "gauge"}
    counters = ("engine_call_failures", "engine_preemptions", "faults", "poison_requests")
    for_people |= {f"tandem_{name}_total": "counter" for name in counters}
    assert read | for_people == published


def test_a_page_of_the_real_server() -> None:
    """Written by tests/triton/test_telemetry.py."""
    page = parse(REAL.read_bytes())
    assert page.counters[Series("tandem_generation_tokens_total")] == 6 * 24
    assert page.gauges == {
        "running": 0,
        "waiting": 0,
        "kv_blocks": 64 * 32,
        "kv_blocks_used": 0,
        "engine_requests": 0,
    }
    told = {series.family for series in page.counters}
    absent = {"tandem_probe_sequences_total", "tandem_probe_inter_token_latency_seconds"}  # it has no probeShare
    assert told == {*families.COUNTERS, families.ACCEPTED_PER_POSITION, *families.HISTOGRAMS} - absent


def test_what_the_models_count_comes_through() -> None:
    counted, sink = m.Metrics(), PageSink()
    counted.step(tokens=4, drafted=4, accepted=3)
    counted.observe(m.INTER_TOKEN, 0.03, 4)
    counted.set(m.RUNNING, 2)
    counted.flush(sink)
    page = parse(sink.page())
    assert page.counters[Series(DRAFTS)] == 1
    assert page.counters[Series("tandem_spec_decode_num_draft_tokens_total")] == 4
    assert [page.counters.get(Series(POSITION, key=i)) for i in range(4)] == [1, 1, 1, None]
    assert page.counters[Series("tandem_inter_token_latency_seconds", "bucket", 0.05)] == 4
    assert page.counters[Series("tandem_inter_token_latency_seconds", "sum")] == pytest.approx(0.12)
    assert page.gauges == {"running": 2, "waiting": 0}
