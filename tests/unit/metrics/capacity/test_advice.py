"""Schedules that are advised in mode LLMAPI."""

import pytest

from tandem.api.types import DraftLenStep, ServiceSpec
from tandem.metrics.capacity.advice import DWELL, Advisor, Loads, Proposal, propose
from tandem.metrics.capacity.lengths import Lengths, lengths
from tandem.metrics.capacity.model import ReplicaModel, Steps
from unit.metrics.capacity.truth import Truth, figures, spec

ADAPTIVE = Lengths(0, 4, adaptive=True)
# Each sequence costs much in a verification: speculation ends as the load grows.
STEEP = Truth(d0=0.003, d1=0.0002, v0=0.02, v1=0.0015)


def fitted(*lengths_seen: int, acceptance: float = 0.6) -> ReplicaModel:
    model = ReplicaModel(4, 1 / 6)
    for i in range(200):
        pod = STEEP.pod(1 + (i * 7) % 32, lengths_seen[i % len(lengths_seen)], acceptance)
        model.observe(figures(15.0 * i, pod), ADAPTIVE)
    return model


def seen(*rows: float) -> Loads:
    loads = Loads()
    loads.observe([Steps(each, 4, 0.1, 2.0) for each in rows], 60.0)
    return loads


def proposal(model: ReplicaModel, service: ServiceSpec, loads: Loads) -> Proposal | None:
    return propose(model, service, lengths(service), loads)


LLMAPI = spec(4, mode="LLMAPI")
ALL = fitted(0, 1, 2, 3, 4)


def test_the_schedule_drafts_less_as_the_load_grows() -> None:
    made = proposal(ALL, LLMAPI, seen(2, 24))
    assert made is not None
    steps = made.lengths.steps
    assert steps[0].draft_len == 4, "TensorRT-LLM wants the first step to draft maxDraftLen"
    assert [s.draft_len for s in steps] == sorted((s.draft_len for s in steps), reverse=True)
    for rows in (2, 8, 16, 24, 32):
        best = min(STEEP.itl(rows, k, 0.6) for k in range(1, 5))
        assert STEEP.itl(rows, made.lengths.at(rows)[0], 0.6) <= 1.05 * best
    today, then = (
        sum(1 / STEEP.itl(rows, k, 0.6) for rows, k in zip((2, 24), ks, strict=True))
        for ks in ((4, 4), (made.lengths.at(2)[0], made.lengths.at(24)[0]))
    )
    assert made.gain > 1.1
    assert then > 1.1 * today
    assert made.worthwhile


@pytest.mark.parametrize(
    ("model", "service", "loads", "reason"),
    [
        (ALL, spec(4), seen(24), "the BLS chooses by itself"),
        (ALL, spec(4, mode="LLMAPI", kind="None"), seen(24), "no speculation"),
        (
            ALL,
            spec(4, mode="LLMAPI", kind="MTP"),
            seen(24),
            "no schedule in every release, and a bound drafts nothing",
        ),
        (ALL, LLMAPI, seen(), "no load seen"),
        (ReplicaModel(4, 1 / 6), LLMAPI, seen(24), "nothing known"),
    ],
)
def test_nothing_to_propose(model: ReplicaModel, service: ServiceSpec, loads: Loads, reason: str) -> None:
    assert proposal(model, service, loads) is None, reason


@pytest.mark.parametrize(
    ("model", "service", "loads", "reason"),
    [
        (fitted(0, 1, 2, 3, 4, acceptance=0.95), LLMAPI, seen(2), "at the loads seen nothing would change"),
        (fitted(4), LLMAPI, seen(2), "other lengths were never seen: the gain is a guess"),
        (
            ALL,
            spec(
                4,
                mode="LLMAPI",
                draftLenSchedule=[{"maxBatchSize": 4, "draftLen": 4}, {"maxBatchSize": 8, "draftLen": 1}],
            ),
            seen(2, 24),
            "today's schedule is about as good",
        ),
    ],
)
def test_not_worthwhile(model: ReplicaModel, service: ServiceSpec, loads: Loads, reason: str) -> None:
    made = proposal(model, service, loads)
    assert made is not None
    assert not made.worthwhile, (made, reason)


def test_lengths_that_were_never_seen_are_judged_from_the_loads() -> None:
    """A length of 1 at 24 requests is as many tokens a step as one of 4 at 10, which was seen."""
    made = proposal(fitted(4), LLMAPI, seen(24))
    assert made is not None
    assert made.worthwhile
    true = STEEP.itl(24, 4, 0.6) / STEEP.itl(24, made.lengths.at(24)[0], 0.6)
    assert abs(made.gain / true - 1) < made.doubt


@pytest.mark.parametrize("acceptance", [0.05, 0.3, 0.6, 0.95])
def test_no_load_is_left_without_a_draft(acceptance: float) -> None:
    """TensorRT-LLM's drafters go stale where nothing is drafted, however little a draft is worth there."""
    made = proposal(fitted(0, 1, 2, 3, 4, acceptance=acceptance), LLMAPI, seen(2, 24))
    assert made is not None
    steps = made.lengths.steps
    assert min(step.draft_len for step in steps) >= 1
    assert steps[-1].max_batch_size == LLMAPI.serving.max_batch_size, "nothing is drafted above the last step"


def a_proposal(gain: float, doubt: float = 0.02, draft: int = 2) -> Proposal:
    steps = (DraftLenStep(max_batch_size=4, draft_len=4), DraftLenStep(max_batch_size=16, draft_len=draft))
    return Proposal(Lengths(0, 4, adaptive=False, steps=steps), gain, doubt)


@pytest.mark.parametrize(
    ("proposals", "given", "reason"),
    [
        ([a_proposal(1.2)] * 3, [False, False, True], "after three windows in a row"),
        ([a_proposal(1.05)] * 4, [False] * 4, "too small a gain"),
        ([a_proposal(1.2, doubt=0.5)] * 4, [False] * 4, "too uncertain"),
        ([a_proposal(1.15, doubt=0.2)] * 4, [False] * 4, "it may well be a loss"),
        ([a_proposal(1.2), None, a_proposal(1.2), a_proposal(1.2)], [False] * 4, "not in a row"),
        ([a_proposal(1.2)] * 3 + [None] * 3, [False, False, True, True, True, True], "stays for half an hour"),
    ],
)
def test_advice_takes_its_time(proposals: list[Proposal | None], given: list[bool], reason: str) -> None:
    advisor = Advisor()
    found = [advisor.update(60.0 * i, 60.0, each) is not None for i, each in enumerate(proposals)]
    assert found == given, reason


def test_advice_changes_after_its_time() -> None:
    advisor = Advisor()
    for i in range(4):
        first = advisor.update(60.0 * i, 60.0, a_proposal(1.2))
    assert first is not None
    assert first.message == (
        "write speculation.draftLenSchedule: [{maxBatchSize: 4, draftLen: 4}, {maxBatchSize: 16, draftLen: 2}]:"
        " 1.20 times today's tokens a second at the loads of the last hours"
    )
    assert advisor.update(300.0, 60.0, a_proposal(1.4, draft=1)) == first
    second = advisor.update(120.0 + DWELL, 60.0, a_proposal(1.4, draft=1))
    assert second is not None
    assert second.draft_len_schedule[1].draft_len == 1
    assert advisor.update(200.0 + 2 * DWELL, 60.0, None) is None
