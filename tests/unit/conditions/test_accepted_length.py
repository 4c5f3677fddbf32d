"""`speculation.minAcceptedLength`: when an accepted length is below it, and which cause is named."""

import copy
from typing import Any

import pytest

from support.reports import quiet, report
from support.services import QUICKSTART, parse
from tandem.api.types import ServiceStatus, SpeculativeInferenceService
from tandem.conditions.accepted_length import accepted_length
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Situation
from tandem.conditions.writes import IDLE_SECONDS, Reading, ShownReport, update
from tandem.metrics.report import ServiceReport
from tandem.rollout.decide import Decision
from tandem.rollout.observed import Live, Observed, Workload

NOW, KIND, MINIMUM = "2026-01-01T00:00:00Z", "AcceptedLengthKept", 2.0
OBSERVED = Observed(workloads=[Workload(Live("Deployment", "quickstart-server"), "new")])
LLMAPI: dict[str, Any] = {
    "runtime": {"mode": "LLMAPI", "profile": "trtllm-1.3", "image": "own"},
    "target": {"model": {"uri": "hf://org/target"}},
}
EAGLE = {**LLMAPI, "draft": {"model": {"uri": "hf://org/heads"}}, "speculation": {"decodingType": "Eagle3"}}
NGRAM = {**LLMAPI, "draft": None, "speculation": {"decodingType": "NGram"}}


def seen(length: float | None, revision: str = "new", minimum: float = MINIMUM, **changes: Any) -> ServiceReport:
    """A window of one revision that drafted; `changes` to its speculation."""
    prompt = changes.pop("prompt", None)
    figures = {"meanAcceptedLength": length, "draftLength": 4.0, "drafted": True, "samples": 900, **changes}
    revisions = [{"revision": revision, "speculation": figures, "meanPromptTokens": prompt}]
    return report(minAcceptedLength=minimum, revisions=revisions)


def read(*windows: ServiceReport, every: float = 60.0) -> Reading:
    """The reading after reports that come a window apart."""
    shown: ShownReport | None = None
    for number, window in enumerate(windows):
        shown = update(shown, window, number * every)
    assert shown is not None
    return Reading(shown.report, shown.idle, standings=shown.standings)


def service(minimum: float | None = MINIMUM, **changes: Any) -> SpeculativeInferenceService:
    return parse(QUICKSTART, **copy.deepcopy(changes), speculation__minAcceptedLength=minimum)


def found(of: SpeculativeInferenceService, reading: Reading | None) -> Finding | None:
    return next(accepted_length(Situation(of, Decision(), OBSERVED, NOW, reading=reading)), None)


def shown(of: SpeculativeInferenceService, reading: Reading | None) -> str:
    finding = found(of, reading)
    return f"{finding.status}/{finding.reason}" if finding else "-"


LOW, HIGH, FEW, NONE = seen(1.4), seen(2.6), seen(1.4, samples=100), seen(None, samples=0, drafted=None)
UNKNOWN, LITTLE, LONG = "Unknown/TooFewTokens", "False/AcceptsLittle", "True/LongEnough"
JUDGED: list[tuple[str, list[ServiceReport], str]] = [
    # reason, windows, wanted
    ("one window below is no judgement", [LOW], UNKNOWN),
    ("two are", [LOW, LOW], LITTLE),
    ("one that is long enough is one", [HIGH], LONG),
    ("just the minimum is long enough", [seen(MINIMUM)], LONG),
    ("one window below changes none", [HIGH, LOW], LONG),
    ("two do", [HIGH, LOW, LOW], LITTLE),
    ("not with one between", [HIGH, LOW, HIGH, LOW], LONG),
    ("one window above changes none", [LOW, LOW, HIGH], LITTLE),
    ("two do, too", [LOW, LOW, HIGH, HIGH], LONG),
    ("few tokens show nothing", [FEW, FEW, FEW], UNKNOWN),
    ("no figures are not below", [NONE, NONE, NONE], UNKNOWN),
    ("no traffic is not below", [quiet(minAcceptedLength=MINIMUM)] * 3, UNKNOWN),
    ("a window that shows nothing breaks the row", [LOW, FEW, LOW], UNKNOWN),
    ("but takes no judgement back", [LOW, LOW, FEW], LITTLE),
    ("nothing is drafted: SpeculationActive says so", [seen(1.0, samples=2000, drafted=False)] * 3, UNKNOWN),
    ("the load asks for no drafts", [seen(1.0, samples=2000, drafted=None, askedLength=0)] * 3, UNKNOWN),
    ("the pods of another revision", [seen(1.4, "old")] * 3, UNKNOWN),
    ("held against another minimum", [seen(1.4, minimum=1.5)] * 3, UNKNOWN),
    ("the minimum was raised: it begins anew", [seen(1.6, minimum=1.5), seen(1.6), seen(1.6)], LITTLE),
]


@pytest.mark.parametrize(("reason", "windows", "wanted"), JUDGED, ids=[row[0] for row in JUDGED])
def test_what_is_below_the_minimum(reason: str, windows: list[ServiceReport], wanted: str) -> None:
    assert shown(service(), read(*windows)) == wanted, reason


def test_two_windows_are_two_windows_of_time() -> None:
    """Reports come every few seconds, and each speaks of the last minute."""
    assert shown(service(), read(*[LOW] * 4, every=15.0)) == UNKNOWN
    assert shown(service(), read(*[LOW] * 5, every=15.0)) == LITTLE


def test_an_idle_service_is_not_below() -> None:
    idle = seen(None, samples=0, drafted=None).model_copy(update={"tokens_per_second": 0.0})
    after = read(LOW, LOW, *[idle] * (int(IDLE_SECONDS // 60) + 1))
    assert after.idle
    assert shown(service(), after) == "Unknown/NoTraffic"


CAUSES: list[tuple[str, dict[str, Any], list[ServiceReport], str, str]] = [
    # reason, spec, windows, wanted, words of the message
    ("nothing points at a cause", {}, [LOW] * 2, "AcceptsLittle", "tandem bench"),
    (
        "the adaptive length drafts one token",
        {},
        [seen(1.6, draftLength=0.9)] * 2,
        "DraftsTooShort",
        "0.9 tokens are drafted a step, which gives 1.9 at most: raise adaptive.minDraftLen",
    ),
    (
        "the schedule asks for too few",
        EAGLE,
        [seen(1.6, draftLength=None, askedLength=0.5)] * 2,
        "DraftsTooShort",
        "raise the lengths of draftLenSchedule",
    ),
    (
        "the load was above the schedule before",
        EAGLE,
        [HIGH, seen(1.0, samples=2000, drafted=None, askedLength=0), LOW, LOW],
        "DrafterStale",
        "raise maxConcurrency",
    ),
    (
        "n-grams are looked up in the whole text",
        NGRAM,
        [HIGH, seen(1.0, samples=2000, drafted=None, askedLength=0), LOW, LOW],
        "AcceptsLittle",
        "",
    ),
    (
        "that was before it was long enough again",
        EAGLE,
        [HIGH, seen(1.0, samples=2000, drafted=None, askedLength=0), HIGH, LOW, LOW],
        "AcceptsLittle",
        "",
    ),
    (
        "heads of another model",
        EAGLE,
        [seen(1.04, samples=2000, acceptedPerPosition=[0.03, 0.2])] * 2,
        "WrongDraft",
        "accepts the first draft token in 3% of the steps",
    ),
    ("n-grams may miss", NGRAM, [seen(1.04, samples=2000, acceptedPerPosition=[0.03])] * 2, "AcceptsLittle", ""),
    ("long prompts with heads", EAGLE, [seen(1.4, prompt=9000)] * 2, "ContextsTooLong", "prompts have 9,000 tokens"),
    ("a draft model reads long prompts", {}, [seen(1.4, prompt=9000)] * 2, "AcceptsLittle", ""),
    ("prompts that heads know", EAGLE, [seen(1.4, prompt=4000)] * 2, "AcceptsLittle", ""),
]


@pytest.mark.parametrize(("reason", "spec", "windows", "wanted", "words"), CAUSES, ids=[row[0] for row in CAUSES])
def test_the_likely_cause(
    reason: str, spec: dict[str, Any], windows: list[ServiceReport], wanted: str, words: str
) -> None:
    finding = found(service(**spec), read(*windows))
    assert finding is not None
    assert (finding.status, finding.reason) == ("False", wanted), reason
    assert words in finding.message
    assert "below speculation.minAcceptedLength (2) for 2 windows of 60 s: " in finding.message


def test_without_a_minimum_there_is_no_condition() -> None:
    assert shown(service(None), read(LOW, LOW)) == "-"


def test_without_a_metrics_server_nothing_is_known() -> None:
    finding = found(service(), None)
    assert finding is not None
    assert (finding.status, finding.reason) == ("Unknown", "NoFigures")
    assert "metricsServer.enabled" in finding.message


@pytest.mark.parametrize(
    ("reason", "windows", "wanted"),
    [("long enough", [HIGH], UNKNOWN), ("too short", [LOW, LOW], LITTLE)],
    ids=["long enough is known of the old revision only", "too short stands until the next one is judged"],
)
def test_another_revision(reason: str, windows: list[ServiceReport], wanted: str) -> None:
    before = found(service(), read(*windows))
    assert before
    assert before.message.endswith("(revision new)")
    shown_before = {
        "type": KIND,
        "lastTransitionTime": NOW,
        **{k: getattr(before, k) for k in ("status", "reason", "message")},
    }
    later = service().model_copy(update={"status": ServiceStatus.model_validate({"conditions": [shown_before]})})
    next_one = Observed(workloads=[Workload(Live("Deployment", "quickstart-server"), "newer")])
    (kept,) = accepted_length(Situation(later, Decision(), next_one, NOW, reading=read(NONE)))
    assert f"{kept.status}/{kept.reason}" == wanted, reason


def test_an_operator_that_starts_says_what_it_said_before() -> None:
    """It has seen no two windows, and then sees them with other numbers."""
    before = found(service(), read(LOW, LOW))
    assert before is not None
    condition = {"type": KIND, "status": before.status, "reason": str(before.reason), "message": before.message}
    status = {"conditions": [{**condition, "lastTransitionTime": NOW}]}
    shows = ServiceStatus.model_validate(status)
    again = service().model_copy(update={"status": shows})
    for reading in (read(quiet(minAcceptedLength=MINIMUM)), read(seen(1.3)), read(seen(1.3), seen(1.3))):
        assert found(again, reading) == before
    assert shown(again, read(HIGH)) == LONG
    higher = service(3.0).model_copy(update={"status": shows})
    assert shown(higher, read(quiet(minAcceptedLength=3.0))) == UNKNOWN, "that was another minimum"


@pytest.mark.parametrize(
    ("windows", "news"),
    [([LOW, LOW], True), ([HIGH, HIGH], False), ([HIGH, seen(2.3)], False), ([HIGH, LOW, LOW], True)],
    ids=["it is judged", "as before", "another length on the same side", "another judgement"],
)
def test_which_reports_are_worth_a_look(windows: list[ServiceReport], news: bool) -> None:
    """The operator looks at a service again where what it shows of the reports is another value."""
    *first, last = windows
    shown: ShownReport | None = None
    for number, window in enumerate(first):
        shown = update(shown, window, number * 60.0)
    assert shown is not None
    # Within a minute of a report that is shown, figures alone are no news.
    again = ShownReport(shown.report, shown.idle, shown.standings, shown_at=60.0 * len(first), traffic_at=0.0)
    assert (update(again, last, 60.0 * len(first)) != again) is news
