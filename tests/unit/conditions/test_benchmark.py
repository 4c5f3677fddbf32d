"""What `tandem bench --record` wrote, and what status tells of it: of this revision, sane, and of enough samples."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from support.completions import completion
from support.reports import quiet, report, sure
from support.services import QUICKSTART, parse
from support.world import observed_of
from tandem.api.types import SpeculativeInferenceService
from tandem.api.wire import Object
from tandem.children.benchmark import KEY, benchmark_configmap
from tandem.client.bench.figures import Level, Side, Window
from tandem.client.bench.record import recorded
from tandem.conditions.benchmark import MOST_BYTES, Benchmark, BenchmarkRecord, benchmark
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.conditions.speculation import verdicts
from tandem.conditions.writes import Reading
from tandem.metrics.telemetry.figures import Figures
from tandem.metrics_server import reports
from tandem.plural import counted
from tandem.rollout.decide import decide
from tandem.rollout.observed import Observed
from tandem.settings import Settings

NOW = "2026-01-01T00:05:00Z"
REVISION = "0a1b2c3d4e"
LLMAPI = {
    "runtime": {"mode": "LLMAPI", "profile": "reference"},
    "speculation": {"decodingType": "NGram"},
    "draft": None,
}
UNTOLD = report(worth={"speedup": None, "samples": 0, "message": "not seen"})
"""Traffic that does not show what speculation is worth."""


def level(streams: int = 1, speedup: float = 1.5, spread: float = 0.1, **changes: Any) -> dict[str, Any]:
    figures = {"speedup": speedup, "low": speedup - spread, "high": speedup + spread}
    return {"streams": streams, **figures, "pairs": 3, "requests": 120, **changes}


def result(*levels: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"revision": REVISION, "at": "2026-01-01T00:00:00Z", "levels": list(levels or [level()]), **changes}


def recorded_as(data: dict[str, str] | None) -> Observed:
    """The service independent a ConfigMap with this data."""
    name = {"name": "quickstart-benchmark"}
    return observed_of({"kind": "ConfigMap", "metadata": name, **({"data": data} if data else {})})


def observed(found: Any) -> Observed:
    return recorded_as({KEY: found if isinstance(found, str) else json.dumps(found)})


def serving(revision: str | None = REVISION, **spec: Any) -> SpeculativeInferenceService:
    service = parse(QUICKSTART, **{**LLMAPI, **spec})
    return service.model_copy(update={"status": type(service.status)(current_revision=revision)})


def read(found: Any, load: float | None = None, revision: str | None = REVISION) -> Benchmark:
    said = benchmark(serving(revision), observed(found), load)
    assert said is not None
    return said


def test_nothing_is_recorded() -> None:
    assert benchmark(serving(), Observed(), None) is None


def test_a_result_tells_its_worth_with_its_samples() -> None:
    worth = read(result(level(4, 1.5), against="alone")).worth
    assert (worth.speedup, worth.low, worth.high, worth.source, worth.samples) == (1.5, 1.4, 1.6, "Benchmark", 120)
    assert worth.message == (
        "1.50 times the target alone (1.40 to 1.60) with 4 streams, by tandem bench against alone: 3 pairs of"
        " windows, 120 requests (revision 0a1b2c3d4e, 2026-01-01T00:00:00Z)"
    )


def test_a_time_of_another_zone_is_told_in_utc() -> None:
    said = read(result(at="2026-01-01T01:30:00.5+02:00"))
    assert said.at == "2025-12-31T23:30:00Z"
    assert said.worth.message.endswith(", 2025-12-31T23:30:00Z)")


LOADS = [
    # load, streams of the level that counts, reason
    (None, 1, "not known: the lowest"),
    (0.0, 1, "none now"),
    (0.3, 1, "below the lowest"),
    (1.9, 1, "nearer to 1 than to 4, as a ratio"),
    (2.1, 4, "nearer to 4"),
    (2.0, 1, "between both"),
    (100.0, 16, "above the highest"),
]


@pytest.mark.parametrize(("load", "streams", "reason"), LOADS, ids=[row[2] for row in LOADS])
def test_the_level_nearest_to_the_load_counts(load: float | None, streams: int, reason: str) -> None:
    said = read(result(level(16, 0.9), level(1, 1.8), level(4, 1.4)), load)
    assert f"with {counted(streams, 'stream')}" in said.worth.message, reason


UNUSABLE: dict[str, tuple[Any, str, str]] = {
    # what was written, reason, words
    "another revision": (
        result(revision="ffff"),
        "BenchmarkOutdated",
        "revision ffff at 2026-01-01T00:00:00Z, and 0a1b",
    ),
    "two pairs": (result(level(pairs=2)), "BenchmarkTooShort", "2 pairs of windows at 1 stream, too few"),
    "no JSON": ("<html>", "BenchmarkUnreadable", "result.json: Invalid JSON"),
    "a list": ("[]", "BenchmarkUnreadable", "result.json: Input should be an object"),
    "nothing": ("", "BenchmarkUnreadable", "result.json: Invalid JSON"),
    "no levels": (result() | {"levels": []}, "BenchmarkUnreadable", "levels: "),
    "too many levels": (result(*[level()] * 65), "BenchmarkUnreadable", "levels: "),
    "not a number": (
        json.dumps(result()).replace("1.5", "NaN"),
        "BenchmarkUnreadable",
        "levels.0.speedup: Input should be a finite number",
    ),
    "infinitely fast": (json.dumps(result()).replace("1.5", "1e999"), "BenchmarkUnreadable", "levels.0.speedup: "),
    "negative": (result(level(speedup=-1)), "BenchmarkUnreadable", "levels.0.speedup: "),
    "out of order": (result(level(low=2.0)), "BenchmarkUnreadable", "speedup must lie between low and high"),
    "a time that is none": (result(at="soon"), "BenchmarkUnreadable", "at: "),
    "a time of no place": (result(at="2026-01-01T00:00:00"), "BenchmarkUnreadable", "at: "),
    "before there were computers": (result(at="0099-01-01T00:00:00Z"), "BenchmarkUnreadable", "at: "),
    "the end of time": (result(at="9999-12-31T23:59:59-05:00"), "BenchmarkUnreadable", "at: "),
    "a revision with words": (result(revision="\u001b[31m all well"), "BenchmarkUnreadable", "revision: "),
    "a name with words": (result(against="a\nReady: True"), "BenchmarkUnreadable", "against: "),
    "a book": (" " * MOST_BYTES + json.dumps(result()), "BenchmarkUnreadable", "result.json is longer than 16 KiB"),
    "a deep nest": ("[" * 8000, "BenchmarkUnreadable", "result.json: Invalid JSON"),
    "billions": (result(level(requests=10**30)), "BenchmarkUnreadable", "levels.0.requests: "),
}


@pytest.mark.parametrize(("found", "reason", "words"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_used_is_said_in_one_line(found: Any, reason: str, words: str) -> None:
    said = read(found)
    assert (said.worth.speedup, said.reason) == (None, reason)
    assert words in said.worth.message
    assert "run it again with --record" in said.worth.message
    assert len(said.worth.message) < 500
    assert said.worth.message.isprintable()


@pytest.mark.parametrize("data", [None, {}, {"other": "{}"}], ids=["no data", "empty", "another key"])
def test_a_config_map_of_something_else(data: dict[str, str] | None) -> None:
    said = benchmark(serving(), recorded_as(data), None)
    assert said is not None
    assert "there is no result.json" in said.worth.message


def test_no_revision_serves_yet() -> None:
    assert read(result(), revision=None).reason == "BenchmarkOutdated"


# --- what the benchmark writes is what the operator reads -------------------------------------------
def window(tokens: int, requests: int) -> Window:
    return Window(2.0, tokens, (completion(4, 1.0, 0.1),) * requests, ())


def test_what_is_written_is_read() -> None:
    measured = Level(4, Side((window(30, 3), window(40, 2))), Side((window(20, 1), window(20, 1))))
    unknown = Level(8, Side((window(30, 3),)), Side((window(0, 0),)))
    (only,) = recorded([measured, unknown])
    assert (only.streams, only.speedup, only.low, only.high) == (4, 1.75, 1.5, 2.0)
    assert (only.pairs, only.requests) == (2, 7)
    record = BenchmarkRecord(
        revision=REVISION, at=datetime(2026, 1, 1, tzinfo=UTC), against="GPU_1:8001", levels=(only,)
    )
    owner: Object = {"metadata": {"name": "quickstart", "namespace": "default", "uid": "uid-1"}}
    made = benchmark_configmap(owner, record.model_dump_json(by_alias=True))
    assert made["metadata"]["name"] == "quickstart-benchmark"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    said = benchmark(serving(), observed_of(made), None)
    assert said is not None
    assert said.reason == "BenchmarkTooShort", "two pairs"


WINDOWS: dict[str, tuple[list[int], list[int], tuple[float, float, float]]] = {
    # tokens of the windows with speculation, and of those without; speed-up, lowest and highest
    "speculation stood still for a window": ([0, 30, 30], [20, 20, 20], (1.5, 0.0, 1.5)),
    "it made nothing at all": ([0, 0, 0], [20, 20, 20], (0.0, 0.0, 0.0)),
    "the target alone stood nearly still": ([5000, 30, 30], [1, 20, 20], (1.5, 1.5, 5000.0)),
}


@pytest.mark.parametrize(("ours", "alone", "wanted"), WINDOWS.values(), ids=WINDOWS.keys())
def test_whatever_was_measured_can_be_written(
    ours: list[int], alone: list[int], wanted: tuple[float, float, float]
) -> None:
    sides = (Side(tuple(window(tokens, 1) for tokens in side)) for side in (ours, alone))
    (only,) = recorded([Level(4, *sides)])
    assert (only.speedup, only.low, only.high) == wanted


# --- status ---------------------------------------------------------------------------------------
def told(
    service: SpeculativeInferenceService, reading: Reading | None, found: Any, settings: Settings
) -> tuple[str, float | None, SpeculativeInferenceService]:
    """`Status/Reason` of SpeculationBeneficial, the speed-up in status, and the service with that status."""
    decision = decide(service, settings, Observed())
    said = benchmark(service, observed(found), None) if found else None
    shown = status(Situation(service, decision, Observed(), NOW, reading=reading, benchmark=said))
    condition = next((c for c in shown["conditions"] if c["type"] == "SpeculationBeneficial"), None)
    after = type(service.status).model_validate({**shown, "currentRevision": service.status.current_revision})
    words = f"{condition['status']}/{condition['reason']}" if condition else ""
    return words, shown.get("speculation", {}).get("speedup"), service.model_copy(update={"status": after})


def series(service: SpeculativeInferenceService) -> float | None:
    """What the metrics server reads in status, for its series."""
    return reports.report(service, Figures(0.0), None, 60, ()).benchmarked_speedup


STATUS: list[tuple[str, Reading | None, Any, str, float | None]] = [
    # reason, reading, recorded, condition, speed-up
    ("nothing is known", Reading(UNTOLD), None, "Unknown/TooFewSamples", None),
    ("a benchmark knows", Reading(UNTOLD), result(), "True/Faster", 1.5),
    ("slower", Reading(UNTOLD), result(level(speedup=0.8)), "False/Slower", 0.8),
    ("around 1", Reading(UNTOLD), result(level(speedup=1.02)), "Unknown/NoClearDifference", 1.02),
    ("of another revision", Reading(UNTOLD), result(revision="ffff"), "Unknown/BenchmarkOutdated", None),
    ("hostile", Reading(UNTOLD), "{", "Unknown/BenchmarkUnreadable", None),
    ("the traffic knows better", Reading(report(worth=sure(1.2))), result(), "True/Faster", 1.2),
    ("the traffic knows, the benchmark is old", Reading(report()), result(revision="ffff"), "True/Faster", 1.5),
    ("no traffic", Reading(quiet()), result(), "True/Faster", 1.5),
    ("the metrics server says nothing yet", Reading(), result(), "True/Faster", 1.5),
    ("there is no metrics server", None, result(), "True/Faster", 1.5),
    ("nor a benchmark", None, None, "", None),
]


@pytest.mark.parametrize(
    ("reason", "reading", "found", "condition", "speedup"), STATUS, ids=[row[0] for row in STATUS]
)
def test_status(
    reason: str, reading: Reading | None, found: Any, condition: str, speedup: float | None, settings: Settings
) -> None:
    words, shown, after = told(serving(), reading, found, settings)
    assert (words, shown) == (condition, speedup), reason
    if found and speedup is not None and not (reading and reading.report and reading.report.worth.speedup):
        assert after.status.speculation is not None
        assert after.status.speculation.speedup_source == "Benchmark"
        sure = speedup if not condition.startswith("Unknown") else None
        assert series(after) == sure, "what alerts are made of"


AFTER: list[tuple[str, Reading | None, Any, str, float | None]] = [
    ("it stays", Reading(UNTOLD), result(), "True/Faster", 1.5),
    ("while nothing is told", Reading(answered=False), result(), "True/Faster", 1.5),
    ("measured again", Reading(UNTOLD), result(level(speedup=2.0)), "True/Faster", 2.0),
    ("another revision serves", Reading(UNTOLD), result(revision="ffff"), "Unknown/BenchmarkOutdated", None),
    ("it was deleted", Reading(UNTOLD), None, "Unknown/TooFewSamples", None),
    ("it was deleted, without traffic", Reading(quiet()), None, "Unknown/NoTraffic", None),
    ("the traffic tells", Reading(report(worth=sure(0.9))), result(), "False/Slower", 0.9),
]


@pytest.mark.parametrize(("reason", "reading", "found", "condition", "speedup"), AFTER, ids=[row[0] for row in AFTER])
def test_status_after_a_benchmark_was_told(
    reason: str, reading: Reading | None, found: Any, condition: str, speedup: float | None, settings: Settings
) -> None:
    *_, before = told(serving(), Reading(UNTOLD), result(), settings)
    words, shown, _ = told(before, reading, found, settings)
    assert (words, shown) == (condition, speedup), reason


def test_what_the_traffic_told_stands_beside_an_old_benchmark(settings: Settings) -> None:
    *_, before = told(serving(), Reading(report(worth=sure(0.9))), None, settings)
    words, speedup, _ = told(before, Reading(UNTOLD), result(revision="ffff"), settings)
    assert (words, speedup) == ("False/Slower", 0.9)


def test_who_does_not_know_is_told_how_to_measure(settings: Settings) -> None:
    decision = decide(serving(), settings, Observed())
    (found,) = [
        f
        for f in verdicts(Situation(serving(), decision, Observed(), NOW, reading=Reading(UNTOLD)))
        if f.type == "SpeculationBeneficial"
    ]
    assert found.message == (
        "not seen; `tandem bench quickstart -n default --prompts FILE --base --record` measures it"
    )
