"""Whether speculation yields the target's distribution: chi-square tests with fixed seeds.

Each wrong rule of acceptance in `WRONG` must fail the test that the right one passes.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reference_engine import acceptance, sampling
from reference_engine.request import Finish, Output, Request
from reference_engine.sampling import SamplingParams, Stream
from reference_engine.scheduler import Scheduler
from support.reference_engine import run
from unit.reference_engine import tiny_llama
from unit.reference_engine.chi_square import RIGHT, deviation

Ids = npt.NDArray[np.int32]
Outcome = tuple[int, ...]

TARGET = np.array([0.3, 2.0, -1.0, 1.6, 0.8, 0.0, 1.1], np.float32)
DRAFT = np.array([1.5, 0.4, -0.5, 1.8, -0.2, 0.9, 1.0], np.float32)
HISTORY = np.array([1, 2, 2, 5], np.int32)
TRIALS = 4000
WRONG_AT_LEAST = 6.0


SETTINGS: list[tuple[str, SamplingParams]] = [
    ("as it is", SamplingParams(top_p=1.0)),
    ("cold", SamplingParams(top_p=1.0, temperature=0.6)),
    ("hot", SamplingParams(top_p=1.0, temperature=1.7)),
    ("top-k", SamplingParams(top_k=3)),
    ("top-p", SamplingParams(top_p=0.8)),
    ("top-k and top-p, cold", SamplingParams(top_k=5, top_p=0.9, temperature=0.8)),
    (
        "penalties",
        SamplingParams(top_p=1.0, repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.4),
    ),
    (
        "bias and a bad word",
        SamplingParams(top_p=0.95, embedding_bias=np.array([1, 0, 2, 0, 0, -1, 0], np.float32), bad_words=((5, 3),)),
    ),
]
SETTING_NAMES = [name for name, _ in SETTINGS]


def one_position(params: SamplingParams, vary_seed: bool) -> float:
    """Deviation of draft-and-verify at one position from the target's distribution."""
    p, q = (sampling.process(logits, params, HISTORY, ()) for logits in (TARGET, DRAFT))
    counts: Counter[int] = Counter()
    for trial in range(TRIALS):
        seeded, position = (replace(params, seed=trial), 9) if vary_seed else (params, trial)
        proposed = sampling.choose(q, seeded, position)
        counts[acceptance.verify(p, q, seeded, proposed, position)] += 1
    return deviation(counts, dict(enumerate(sampling.probabilities(p, params))))


@pytest.mark.nightly
@pytest.mark.parametrize("vary_seed", [True, False], ids=["over seeds", "over positions"])
@pytest.mark.parametrize(("name", "params"), SETTINGS, ids=SETTING_NAMES)
def test_one_position_is_distributed_as_the_target(name: str, params: SamplingParams, vary_seed: bool) -> None:
    assert abs(one_position(params, vary_seed)) < RIGHT


def always_accept(p: Any, q: Any, params: SamplingParams, proposed: int, position: int) -> int:
    return proposed


def replace_by_the_target(p: Any, q: Any, params: SamplingParams, proposed: int, position: int) -> int:
    """Accepts rightly, but draws from p instead of what p has more than q."""
    token = VERIFY(p, q, params, proposed, position)
    return token if token == proposed else sampling.choose(p, replace(params, seed=params.seed + 10**6), position)


def unprocessed_draft(p: Any, q: Any, params: SamplingParams, proposed: int, position: int) -> int:
    """Takes the draft's logits as they come."""
    return VERIFY(p, DRAFT, params, proposed, position)


def accept_by_the_drafts_number(p: Any, q: Any, params: SamplingParams, proposed: int, position: int) -> int:
    p, q = sampling.probabilities(p, params), sampling.probabilities(q, params)
    if np.exp(-drafts_clocks(params, position)[proposed]) * q[proposed] < p[proposed]:
        return proposed
    return sampling.draw(np.maximum(p - q, 0), sampling.uniform(params.seed, position, Stream.RESIDUAL))


def replace_by_the_number_of_acceptance(p: Any, q: Any, params: SamplingParams, proposed: int, position: int) -> int:
    token = VERIFY(p, q, params, proposed, position)
    residual = np.maximum(sampling.probabilities(p, params) - sampling.probabilities(q, params), 0)
    number = sampling.uniform(params.seed, position, Stream.ACCEPT)
    return token if token == proposed else sampling.draw(residual, number)


def drafts_clocks(params: SamplingParams, position: int) -> npt.NDArray[np.float64]:
    return sampling._generator(params.seed, position, Stream.DRAW).standard_exponential(len(TARGET))


VERIFY = acceptance.verify
WRONG: list[tuple[Callable[..., int], SamplingParams]] = [
    (always_accept, SETTINGS[0][1]),
    (replace_by_the_target, SETTINGS[0][1]),
    (unprocessed_draft, SETTINGS[1][1]),
    (accept_by_the_drafts_number, SETTINGS[0][1]),
    (replace_by_the_number_of_acceptance, SETTINGS[0][1]),
]


@pytest.mark.parametrize(("rule", "params"), WRONG, ids=[rule.__name__ for rule, _ in WRONG])
def test_wrong_rules_are_seen(
    monkeypatch: pytest.MonkeyPatch, rule: Callable[..., int], params: SamplingParams
) -> None:
    monkeypatch.setattr(acceptance, "verify", rule)
    assert one_position(params, vary_seed=True) > WRONG_AT_LEAST


def test_equal_distributions_are_always_accepted() -> None:
    params = SamplingParams(top_p=0.9, temperature=1.3)
    p = sampling.process(TARGET, params, HISTORY, ())
    for trial in range(500):
        proposed = sampling.choose(p, replace(params, seed=trial), 3)
        assert acceptance.verify(p, p, replace(params, seed=trial), proposed, 3) == proposed


def test_rounding_leaves_the_proposed_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """p is below q at the proposed token and nowhere above it: nothing to draw from."""
    monkeypatch.setattr(sampling, "probabilities", lambda logits, _: logits)
    monkeypatch.setattr(sampling, "uniform", lambda *_: 0.99)
    p, q = np.array([0.5, 0.5], np.float32), np.array([0.5, 0.51], np.float32)
    assert acceptance.verify(p, q, SamplingParams(top_p=1.0), 1, 0) == 1


def test_greedy_is_exact_match() -> None:
    for params in (SamplingParams(top_k=1, top_p=0.9), SamplingParams(temperature=0, top_p=0.9)):
        assert [acceptance.verify(TARGET, DRAFT, params, proposed, 3) for proposed in range(7)] == [1] * 7


@dataclass
class Case:
    """How `length` tokens are made in rounds of draft lengths `rounds`, over and over."""

    sampling: SamplingParams
    rounds: tuple[int, ...] = (2,)
    by_logits: bool = True
    end_id: int = -1
    stop_words: tuple[tuple[int, ...], ...] = ()
    length: int = 3


SHAPE = {"vocab_size": 6, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
PROMPT: Ids = np.array([1, 4, 2, 2], np.int32)
SAMPLED = SamplingParams(top_p=0.95, temperature=1.3)
SEEDS = 1200
TOGETHER = 60


@dataclass
class Speculation:
    """The draft-and-verify loop of one sequence over both schedulers."""

    case: Case
    seed: int
    text: Ids = field(default_factory=lambda: PROMPT)
    ended: bool = False
    rounds: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = itertools.cycle(self.case.rounds)

    @property
    def made(self) -> int:
        return len(self.text) - len(PROMPT)

    def params(self) -> SamplingParams:
        left = max(0, self.case.sampling.min_tokens - self.made)
        return replace(self.case.sampling, seed=self.seed, min_tokens=left)

    def draft_request(self) -> Request:
        """Without end_id and min_tokens: k tokens, always."""
        count = min(next(self.rounds), self.case.length - self.made)
        return Request(self.text, count, sampling=replace(self.params(), min_tokens=0), logits=True)

    def target_request(self, draft: Output) -> Request:
        return Request(
            self.text,
            len(draft.tokens) + 1,
            draft_ids=np.array(draft.tokens, np.int32),
            draft_logits=np.stack(draft.logits) if self.case.by_logits else None,
            end_id=self.case.end_id,
            stop_words=self.case.stop_words,
            sampling=self.params(),
        )

    def take(self, output: Output) -> None:
        self.text = np.concatenate([self.text, np.array(output.tokens, np.int32)])
        self.ended = output.finish != Finish.LENGTH or self.made >= self.case.length

    @property
    def outcome(self) -> Outcome:
        """The tokens, without what the last round made too many."""
        return tuple(self.text[len(PROMPT) :][: self.case.length].tolist())


def speculate(case: Case, seeds: range, together: int = TOGETHER) -> list[Outcome]:
    """What speculation makes with each seed."""
    target, draft = schedulers(together)
    outcomes: list[Outcome] = []
    for start in range(seeds.start, seeds.stop, together):
        group = [Speculation(case, seed) for seed in range(start, min(start + together, seeds.stop))]
        while running := [each for each in group if not each.ended]:
            drafts = run(draft, *(each.draft_request() for each in running))
            requests = [each.target_request(output) for each, [output] in zip(running, drafts, strict=True)]
            for each, [output] in zip(running, run(target, *requests), strict=True):
                each.take(output)
        outcomes += [each.outcome for each in group]
    return outcomes


def schedulers(slots: int) -> tuple[Scheduler, Scheduler]:
    """Target and draft: different weights, so that they often disagree."""
    target = tiny_llama.scheduler(SHAPE, slots, max_num_tokens=512)
    draft = tiny_llama.scheduler({**SHAPE, "rope_theta": 3.0, "rms_norm_eps": 0.3}, slots, max_num_tokens=512)
    return target, draft


def alone(case: Case) -> dict[Outcome, float]:
    """Probability of each outcome of the target alone, from its logits after every beginning."""
    target, _ = schedulers(1)
    open_: dict[Outcome, float] = {(): 1.0}
    ended: dict[Outcome, float] = {}
    for made in range(case.length):
        grown: dict[Outcome, float] = {}
        for outcome, share in open_.items():
            text = np.concatenate([PROMPT, np.array(outcome, np.int32)])
            [[output]] = run(target, Request(text, 1, logits=True))
            banned = [case.end_id] if made < case.sampling.min_tokens else []
            processed = sampling.process(output.logits[0], case.sampling, text, banned)
            for token, chance in enumerate(sampling.probabilities(processed, case.sampling)):
                if token == case.end_id:
                    ended[outcome] = ended.get(outcome, 0) + share * chance
                elif (token,) in case.stop_words:
                    ended[*outcome, token] = share * chance
                else:
                    grown[*outcome, token] = share * chance
        open_ = grown
    return open_ | ended


CASES: list[tuple[str, Case]] = [
    ("one draft token", Case(SAMPLED, (1,))),
    ("three", Case(SAMPLED, (3,))),
    ("changing draft lengths", Case(SAMPLED, (1, 2))),
    ("top-k", Case(SamplingParams(top_k=3), (2,))),
    ("end_id", Case(SAMPLED, (2,), end_id=3)),
    ("end_id below min_tokens", Case(SamplingParams(top_p=1.0, min_tokens=2), (3,), end_id=1)),
    ("stop words", Case(SAMPLED, (3,), stop_words=((0,), (5,)))),
    (
        "penalties",
        Case(replace(SAMPLED, repetition_penalty=1.5, presence_penalty=0.2, frequency_penalty=0.3), (3,)),
    ),
    ("by match", Case(SAMPLED, (2,), by_logits=False)),
    ("by match, end_id", Case(SAMPLED, (2,), by_logits=False, end_id=3)),
    ("by match, penalties", Case(replace(SAMPLED, repetition_penalty=1.5), (3,), by_logits=False)),
]


OFTEN = ("three", "by match")
"""Rows of each change; the others are nightly."""


@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(*row, marks=() if row[0] in OFTEN else pytest.mark.nightly, id=row[0]) for row in CASES],
)
def test_several_tokens_are_distributed_as_the_targets(name: str, case: Case) -> None:
    assert abs(deviation(Counter(speculate(case, range(SEEDS))), alone(case))) < RIGHT


def test_several_tokens_by_a_wrong_rule_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(replace(SAMPLED, top_p=1.0), (2,))
    monkeypatch.setattr(acceptance, "verify", always_accept)
    assert deviation(Counter(speculate(case, range(SEEDS))), alone(case)) > WRONG_AT_LEAST


def test_each_draft_token_is_judged_by_its_own_logits() -> None:
    """Tokens that the draft would almost never draw are always accepted."""
    draft = np.array([5, 0, 3, 2], np.int32)
    rare = np.zeros((4, 6), np.float32)
    rare[range(4), draft] = -60
    target, _ = schedulers(1)
    [[output]] = run(target, Request(PROMPT, 5, draft, rare, sampling=SamplingParams(top_p=1.0)))
    assert (output.tokens[:4], output.stats.accepted_draft_tokens) == (draft.tolist(), 4)


@pytest.mark.nightly
@pytest.mark.parametrize("by_logits", [True, False], ids=["by logits", "by match"])
def test_company_changes_nothing(by_logits: bool) -> None:
    case = Case(replace(SAMPLED, repetition_penalty=1.2), (3, 1), by_logits=by_logits, length=8)
    assert speculate(case, range(40), together=7) == speculate(case, range(40), together=1)
