"""Answers of Prometheus' API, turned into the same pages as the pods' own; `test_prometheus` of the integration
tests asks the real one."""

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from tandem.metrics.telemetry.families import COUNTERS, HISTOGRAMS
from tandem.metrics.telemetry.page import MAX_SERIES, PageError
from tandem.metrics.telemetry.prometheus import MAX_BYTES, PrometheusSource, add, by_pod
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from unit.chart.conftest import CHART
from unit.metrics.telemetry.hostile_pods import Answer, fixed, serve

TOKENS, RUNNING = "tandem_generation_tokens_total", "tandem_requests_running"
FIRST = "tandem_time_to_first_token_seconds"


def found(name: str, values: Sequence[tuple[float, str]], pod: str = "pod-a", **labels: str) -> dict[str, Any]:
    metric = {"__name__": name, "namespace": "ns", "pod": pod, "job": "ns/llm", **labels}
    return {"metric": metric, "values": [list(pair) for pair in values]}


def answer(*results: Mapping[str, Any]) -> bytes:
    data = {"resultType": "matrix", "result": results}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


def test_scrapes_of_a_pod_become_its_samples() -> None:
    result = answer(
        found(TOKENS, [(100.5, "10"), (115.5, "40")]),
        found(TOKENS, [(101, "1000")], pod="pod-b"),
        found(RUNNING, [(100.5, "2"), (115.5, "4")], model="a"),
        found(RUNNING, [(100.5, "1"), (115.5, "1")], model="b"),
        *(found(f"{FIRST}_bucket", [(100.5, "0"), (115.5, "3")], le=le) for le in ("0.5", "+Inf")),
        found(f"{FIRST}_sum", [(100.5, "0"), (115.5, "0.6")]),
        *(
            found("nv_trt_llm_kv_cache_block_metrics", [(100.5, "40")], kv_cache_block_type="max", model=model)
            for model in ("tensorrt_llm", "tensorrt_llm_draft")
        ),
    )
    store, pods = Store(300), by_pod(result)
    for _ in range(2):  # the same samples come again with the next query
        assert add(store, "uid-a", pods["ns", "pod-a"]) == ""
    (figures,) = store.figures(["uid-a"], 120, 60).pods
    assert (figures.seconds, figures.generation_tokens, figures.running) == (15, 30, 4)
    assert figures.kv_blocks == 40
    assert figures.time_to_first_token is not None
    assert (figures.time_to_first_token.count, figures.time_to_first_token.total) == (3, 0.6)


def test_only_scrapes_that_are_new_are_taken() -> None:
    """Each query gives a minute's samples: most came with the query before."""
    store = Store(300)
    for times in ((85, 100, 115), (100, 115, 130)):
        add(store, "uid", by_pod(answer(found(TOKENS, [(at, str(at)) for at in times])))["ns", "pod-a"])
    assert store.figures(["uid"], 130, 60).pods[0].seconds == 45


@pytest.mark.parametrize(
    ("then", "seconds", "reason"),
    [
        ((100, 115), 15, "set back by an hour: known from there on, not an hour later"),
        ((3660, 3675), 30, "another Prometheus that lags behind"),
    ],
)
def test_the_clock_of_prometheus_is_set_back(then: tuple[float, ...], seconds: float, reason: str) -> None:
    store = Store(300)
    for times in ((3670, 3685, 3700), then):
        add(store, "uid", by_pod(answer(found(TOKENS, [(at, "7") for at in times])))["ns", "pod-a"])
    at = store.latest("uid")
    assert at is not None
    assert store.figures(["uid"], at, 60).pods[0].seconds == seconds, reason


def test_two_jobs_that_scrape_a_pod_do_not_count_it_twice() -> None:
    pods = by_pod(
        answer(
            found(TOKENS, [(100, "10"), (115, "40")]),
            found(TOKENS, [(103, "16"), (118, "46")], job="another"),
        )
    )
    store = Store(300)
    add(store, "uid", pods["ns", "pod-a"])
    assert store.figures(["uid"], 120, 60).sum("generation_tokens") == 36


SCRAPES: dict[str, tuple[bytes, str, int]] = {
    "a bad scrape costs itself": (answer(found(TOKENS, [(100, "1"), (115, "NaN"), (130, "3")])), "", 2),
    "the last is bad": (answer(found(TOKENS, [(100, "1"), (115, "NaN")])), "none of Tandem's metrics are there", 1),
    "a label that means nothing": (answer(found(f"{FIRST}_bucket", [(100, "1")], le="x")), "le='x' is no", 0),
    "a hostile pod's thousand series": (
        answer(*(found(TOKENS, [(100, "1")], a=str(n)) for n in range(MAX_SERIES + 1))),
        f"more than {MAX_SERIES} series",
        0,
    ),
}


@pytest.mark.parametrize(("result", "reason", "samples"), SCRAPES.values(), ids=SCRAPES.keys())
def test_scrapes(result: bytes, reason: str, samples: int) -> None:
    store = Store(300)
    told = add(store, "uid", by_pod(result)["ns", "pod-a"])
    assert told.startswith(reason)
    assert bool(told) == bool(reason)
    assert len(store._pods["uid"].samples if "uid" in store._pods else []) == samples


BAD: dict[str, tuple[Answer, str]] = {
    "an error": (fixed(b'{"status":"error","error":"down"}', status="503 Down"), "Prometheus answers 503: {"),
    "HTML": (fixed(b"<html>"), "Prometheus does not answer as its API should: Expecting value"),
    "another API": (fixed(b"{}"), "Prometheus does not answer as its API should: there is no 'data'"),
    "a redirect": (fixed(b"", "Location: /login\r\n", "302 Found"), "Prometheus answers 302"),
    "an instant vector": (
        fixed(b'{"data":{"result":[{"metric":{"namespace":"a","pod":"b"},"value":[1,"2"]}]}}'),
        "there is no 'values'",
    ),
    "a value that is none": (
        fixed(answer(found(TOKENS, [(1, "many")]))),
        "does not answer as its API should: could not",
    ),
    "samples of nobody": (
        fixed(answer({"metric": {"__name__": TOKENS, "instance": "1.2.3.4"}, "values": []})),
        "Prometheus has samples without the labels namespace and pod: a PodMonitor sets them",
    ),
    "nothing of this pod": (fixed(answer()), "has not scraped it within a minute: does a PodMonitor select it?"),
}


@pytest.mark.parametrize(("reply", "reason"), BAD.values(), ids=BAD.keys())
async def test_without_an_answer_all_pods_are_unknown_and_told_why(reply: Answer, reason: str) -> None:
    store, target = Store(300), ScrapeTarget("uid", "ns", "pod-a", "10.0.0.1")
    async with serve(reply) as server, PrometheusSource(f"http://127.0.0.1:{server.port}/") as prometheus:
        problems = await prometheus.collect([target], store)
    assert reason in problems["uid"]
    assert store.figures(["uid"], 0, 60).unknown == 1
    assert server.request.startswith(b"POST /api/v1/query HTTP/1.1")


async def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.metrics.telemetry.prometheus.MAX_BYTES", 1 << 20)
    target = ScrapeTarget("uid", "ns", "pod-a", "10.0.0.1")
    async with (
        serve(fixed(bytes(5 << 20))) as server,
        PrometheusSource(f"http://127.0.0.1:{server.port}") as prometheus,
    ):
        problems = await prometheus.collect([target], Store(300))
    assert problems == {"uid": "Prometheus answers with more than 1 MiB: read the pods themselves"}


PROCESS_BYTES = 150 << 20
"""What the process takes beside reading an answer: 130 MiB were measured, docs/design/collector.md."""


def test_the_largest_answer_fits_into_the_charts_memory_limit() -> None:
    """Beside what is made of it the answer itself is held. Its series have the labels that a PodMonitor sets."""
    names = [*COUNTERS, *(f"{family}_bucket" for family in HISTOGRAMS for _ in range(14))]
    scrapes = [(1764000000.123 + 15 * n, str(1234567 * n)) for n in range(4)]
    monitor = {"container": "triton", "endpoint": "metrics", "instance": "10.0.0.1:8002", "model": "speculative_bls"}
    text = answer(
        *(
            found(name, scrapes, f"llama-server-{pod}", **monitor, le=f"{n}", speculativeinferenceservice="llama")
            for pod in range(50)
            for n, name in enumerate(names, 1)
        )
    )
    tracemalloc.start()
    pods = by_pod(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pods) == 50
    server = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["metricsServer"]
    assert server["resources"]["limits"]["memory"] == "512Mi"
    assert PROCESS_BYTES + MAX_BYTES * (1 + most / len(text)) < 512 << 20, most / len(text)


@pytest.mark.parametrize(
    "labels", [{"metric": "x"}, {"data": "x", "result": "y"}], ids=["of a series", "of an answer"]
)
def test_a_pods_own_labels_are_no_part_of_the_answer(labels: dict[str, str]) -> None:
    (scrape,) = by_pod(answer(found(TOKENS, [(100, "10")], **labels)))["ns", "pod-a"].values()
    assert scrape == [({"__name__": TOKENS}, 10)]


def test_no_answer_is_a_reason_and_no_crash() -> None:
    for body in (
        b"[" * 20_000,
        b"",
        b"[]",
        b"null",
        b'{"data": 1}',
        b'{"data": {"result": [1]}}',
        b'{"data": {"result": [[]]}}',
    ):
        with pytest.raises(PageError, match="does not answer as its API should"):
            by_pod(body)
