"""Times that no machine has: the draft length is chosen all the same."""

import random

import pytest

from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength

ABSURD = (0.0, 5e-324, 1e-300, 1e-160, 1e-9, 0.001, 0.01, 1.0, 1e6, 1e160, 1e300, -1.0)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_absurd_times_end_no_request(separate: bool, batched: bool, seed: int) -> None:
    rng, now = random.Random(seed), 100.0
    policy = AdaptiveDraftLength(0, 8, separate, batched, clock=lambda: now)
    for sequence in range(4):
        policy.enter(sequence, 8)
    for _ in range(3000):
        now += rng.choice(rng.choice([ABSURD, ABSURD[:5], ABSURD[5:8], ABSURD[8:10]]))
        if rng.random() < 0.01:
            now = 100.0  # or all would be nothing beside it
        k = rng.randrange(9)
        policy.rounds_ended(rng.choice([0, 1, 4, 16]), rng.choice([policy.length(0), k]))
        policy.acceptance.observe(k, rng.randint(0, k))
        assert 0 <= policy.length(0) <= 8
        assert policy.micro_batches(4) in (1, 2)
