from dataclasses import replace

import numpy as np
import pytest

from reference_engine import sampling
from reference_engine.sampling import SamplingParams, Stream

HISTORY = np.array([1, 2, 2, 5], np.int32)
LOGITS = np.array([0.0, 2.0, -1.0, 3.0, 1.0, 0.5], np.float32)
BIAS = np.array([9, 0, 0, 0, 0, 0], np.float32)

PROCESSED: list[tuple[str, SamplingParams, list[int], list[float]]] = [
    ("nothing to do", SamplingParams(), [], [0, 2, -1, 3, 1, 0.5]),
    ("bias", SamplingParams(embedding_bias=BIAS), [], [9, 2, -1, 3, 1, 0.5]),
    ("temperature", SamplingParams(temperature=0.5), [], [0, 4, -2, 6, 2, 1]),
    ("repetition lowers what was seen", SamplingParams(repetition_penalty=2), [], [0, 1, -2, 3, 1, 0.25]),
    ("presence: once, however often", SamplingParams(presence_penalty=1), [], [0, 1, -2, 3, 1, -0.5]),
    ("frequency: as often", SamplingParams(frequency_penalty=1), [], [0, 1, -3, 3, 1, -0.5]),
    ("end_id suppressed", SamplingParams(), [3], [0, 2, -1, -np.inf, 1, 0.5]),
    ("bad word of one token", SamplingParams(bad_words=((4,),)), [], [0, 2, -1, 3, -np.inf, 0.5]),
    ("bad word's end after its beginning", SamplingParams(bad_words=((2, 5, 1),)), [], [0, -np.inf, -1, 3, 1, 0.5]),
    ("bad word's end after something else", SamplingParams(bad_words=((2, 4, 1),)), [], [0, 2, -1, 3, 1, 0.5]),
    ("bad word longer than the history", SamplingParams(bad_words=((9, 1, 2, 2, 5, 1),)), [], [0, 2, -1, 3, 1, 0.5]),
    ("temperature before penalties", SamplingParams(temperature=0.5, presence_penalty=1), [], [0, 3, -3, 6, 2, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "params", "banned", "expected"), PROCESSED, ids=[row[0] for row in PROCESSED])
def test_processing(reason: str, params: SamplingParams, banned: list[int], expected: list[float]) -> None:
    before = LOGITS.copy()
    assert sampling.process(LOGITS, params, HISTORY, banned).tolist() == pytest.approx(expected)
    assert np.array_equal(LOGITS, before), "the engine's logits were changed"


GREEDY = [
    ("defaults", SamplingParams(), True),
    ("top_k 1", SamplingParams(top_k=1, top_p=0.9), True),
    ("temperature 0", SamplingParams(top_k=5, temperature=0), True),
    ("top_k", SamplingParams(top_k=5), False),
    ("top_p", SamplingParams(top_p=1.0), False),
]


@pytest.mark.parametrize(("reason", "params", "greedy"), GREEDY, ids=[row[0] for row in GREEDY])
def test_when_it_is_greedy(reason: str, params: SamplingParams, greedy: bool) -> None:
    assert params.greedy == greedy


def test_ties_go_to_the_lowest_id() -> None:
    assert sampling.choose(np.array([1, 3, 3, 3], np.float32), SamplingParams(), 0) == 1


def draws(params: SamplingParams, count: int = 400) -> set[int]:
    return {sampling.choose(LOGITS, params, position) for position in range(count)}


ALLOWED = [
    ("everything", SamplingParams(top_p=1.0, temperature=9), {0, 1, 2, 3, 4, 5}),
    ("the two best", SamplingParams(top_k=2), {3, 1}),
    ("the nucleus: 0.61 + 0.22 reach 0.8", SamplingParams(top_p=0.8), {3, 1}),
    ("top-p within top-k: 0.73 of two reach 0.7", SamplingParams(top_k=2, top_p=0.7), {3}),
    ("a nucleus has one token at least", SamplingParams(top_p=1e-6), {3}),
]


@pytest.mark.parametrize(("reason", "params", "allowed"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_draws_stay_within_limits(reason: str, params: SamplingParams, allowed: set[int]) -> None:
    logits = sampling.process(LOGITS, params, HISTORY, [])
    assert {sampling.choose(logits, params, position) for position in range(600)} == allowed


def test_draws_follow_the_distribution() -> None:
    params = SamplingParams(top_p=1.0, seed=11)
    drawn = np.bincount([sampling.choose(LOGITS, params, position) for position in range(4000)], minlength=6) / 4000
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum()
    assert 0.5 * np.abs(drawn - expected).sum() < 0.03  # total variation; 0.01 is usual for 4,000 draws


KEPT: list[tuple[str, SamplingParams]] = [
    ("a nucleus of few", SamplingParams(top_p=0.5)),
    ("a nucleus beyond the first try", SamplingParams(top_p=0.97, temperature=9)),
    ("a nucleus of almost all", SamplingParams(top_p=0.9999, temperature=50)),
    ("top-k", SamplingParams(top_k=100)),
    ("top-k and top-p", SamplingParams(top_k=100, top_p=0.9, temperature=3)),
    ("top-k beyond the vocabulary", SamplingParams(top_k=5000)),
    ("everything", SamplingParams(top_p=1.0)),
]


@pytest.mark.parametrize(("reason", "params"), KEPT, ids=[row[0] for row in KEPT])
def test_probabilities_are_those_of_a_full_sort(reason: str, params: SamplingParams) -> None:
    raw = np.random.default_rng(4).integers(-20, 20, 2000).astype(np.float32) / 2  # many ties
    logits = sampling.process(raw, params, HISTORY, [])
    order = np.argsort(-logits, kind="stable")[: params.top_k or len(logits)]
    weights = np.exp(logits[order].astype(np.float64))
    if 0 < params.top_p < 1:
        weights = weights[: int((np.cumsum(weights) < params.top_p * weights.sum()).sum()) + 1]
    expected = np.zeros(len(logits))
    expected[order[: len(weights)]] = weights / weights.sum()
    np.testing.assert_allclose(sampling.probabilities(logits, params), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "params", [SamplingParams(top_p=1.0), SamplingParams(top_k=3), SamplingParams(top_p=0.9)], ids=["all", "k", "p"]
)
def test_similar_distributions_choose_the_same_token_mostly(params: SamplingParams) -> None:
    one = np.array([0.0, 2.5, -1.0, 2.6, 1.0, 0.5], np.float32)
    near = np.array([0.0, 2.6, -1.0, 2.5, 1.0, 0.5], np.float32)
    far = np.array([2.6, 0.5, 2.5, -1.0, 0.0, 1.0], np.float32)
    chosen = [
        [sampling.choose(logits, replace(params, seed=seed), 0) for logits in (one, near, far)]
        for seed in range(1000)
    ]
    assert sum(first == second for first, second, _ in chosen) > 900
    assert sum(first == third for first, _, third in chosen) < 400


def test_a_number_depends_on_seed_position_and_stream_alone() -> None:
    keys = [(seed, position, stream) for seed in (0, 1, 2**64 - 1) for position in (0, 1, 900) for stream in Stream]
    numbers = {key: sampling.uniform(*key) for key in keys}
    assert len(set(numbers.values())) == len(numbers)
    for key, number in reversed(numbers.items()):
        assert sampling.uniform(*key) == number


def test_nothing_of_weight_0_is_drawn() -> None:
    weights = np.array([0, 0.1, 0, 0.2, 0])
    largest = np.nextafter(1, 0)
    assert [sampling.draw(weights, number) for number in (0.0, 0.3, 0.34, largest)] == [1, 1, 3, 3]


def test_log_probs_are_of_the_whole_vocabulary() -> None:
    expected = np.log(np.exp(LOGITS) / np.exp(LOGITS).sum())
    assert [sampling.log_prob(LOGITS, i) for i in range(6)] == pytest.approx(expected.tolist(), abs=1e-6)
