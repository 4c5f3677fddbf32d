"""Call times that no machine has: the draft length is chosen all the same."""

import itertools
import math
import random

import pytest

from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength

ABSURD = (0.0, 5e-324, 1e-300, 1e-160, 1e-9, 0.001, 0.01, 1.0, 1e6, 1e160, 1e300, -1.0, math.inf)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_absurd_call_times_end_no_request(separate: bool, batched: bool, seed: int) -> None:
    rng, now = random.Random(seed), itertools.accumulate(itertools.repeat(0.01), initial=100.0)
    policy = AdaptiveDraftLength(0, 8, separate, batched, clock=lambda: next(now))
    sequences = [policy.estimate() for _ in range(4)]
    for sequence in sequences:
        policy.enter(sequence, 8)
    for _ in range(1500):
        times = rng.choice([ABSURD, ABSURD[:5], ABSURD[5:8], ABSURD[8:10]])
        k, rows = rng.randrange(9), rng.choice([1, 2, 4, 0.5])
        policy.timed("draft", rows, k, rng.choice(times), rng.choice([0, 9]), rng.random() < 0.3)
        policy.timed("target", rows, k, rng.choice(times), rng.choice([0, 9]), rng.random() < 0.3)
        policy.timed_alone(rows, rng.choice([1.0, 8.5]), rng.choice(times), rng.random() < 0.3)
        policy.ended(rng.choice([0, 0, 1, 100]), rng.choice([0, 1, 9]))
        policy.rounds_ended(4, policy.length(sequences[0]))
        sequence = rng.choice(sequences)
        sequence.observe(k, rng.randint(0, k))
        policy.think()
        assert 0 <= policy.length(sequence) <= 8
        assert policy.micro_batches(4) in (1, 2)
        assert math.isfinite(policy.step(4)) and policy.step(4) >= 0
