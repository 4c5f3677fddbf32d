"""When few sequences draft ahead, as a table; how long they wait for each other."""

import pytest

from tandem_serving.bls.draft_length.acceptance import Acceptance
from tandem_serving.bls.draft_length.draft_ahead import DraftAhead


def seen(rate: float, depth: int = 8) -> Acceptance:
    """What is known after many rounds in which each token was accepted at this rate."""
    server = Acceptance(depth)
    for i in range(1000):
        accepted = 0
        while accepted < 4 and (i * 7919 + accepted * 104729) % 1000 < rate * 1000:
            accepted += 1
        server.observe(4, accepted)
    server.update(half_life=1000)
    return server


WORTH = [
    # sequences, k, acceptance, ms of a draft token, side by side, worth, reason
    (4, 4, 0.9, 2, True, True, "much comes true, few share the target"),
    (4, 4, 0.8, 2, True, False, "little comes true: they would only fall apart"),
    (12, 4, 0.9, 2, True, False, "the more sequences, the more wait for each other's verifications"),
    (12, 4, 0.97, 2, True, True, "unless nearly all comes true"),
    (64, 4, 1.0, 2, True, False, "nor could it be worth it"),
    (4, 4, 0.9, 4, True, False, "a draft of 20 ms comes too late behind a verification of 12 ms"),
    (1, 4, 0.3, 2, True, True, "alone there is nobody to wait"),
    (1, 4, 0.3, 8, True, True, "nor anything better to do for the draft engine"),
    (1, 4, 0.9, 2, False, False, "engines that share a device would hold each other up"),
    (4, 0, 0.9, 2, True, False, "nothing is drafted"),
    (8, 1, 0.81, 2, True, False, "little to save: a draft takes a sixth of a verification"),
    (8, 1, 0.95, 2, True, True, "unless nearly all comes true"),
]


@pytest.mark.parametrize(("sequences", "k", "rate", "token", "beside", "worth", "reason"), WORTH)
def test_who_drafts_ahead(
    sequences: int, k: int, rate: float, token: int, beside: bool, worth: bool, reason: str
) -> None:
    foresight = DraftAhead(beside)
    foresight.timed("target", k + 1, 0.012)
    foresight.timed("draft", k, k * token / 1e3)
    assert foresight.worth(sequences, seen(rate)) is worth, reason


def test_a_verification_waits_for_a_part_of_its_own_time() -> None:
    foresight = DraftAhead(True)
    assert foresight.patience == 0.0, "nothing is known yet: nobody waits"
    foresight.timed("target", 5, 0.012)
    assert foresight.patience == pytest.approx(0.003)
    foresight.timed("target", 5, 1.0)
    assert foresight.patience < 0.004, "a machine that stalls is no slow engine"


def test_what_a_draft_takes_is_known_by_its_length_and_follows_what_is_seen() -> None:
    foresight = DraftAhead(True)
    foresight.timed("draft", 4, 0.008)
    assert (foresight.expected(4), foresight.expected(5)) == (0.008, None)
    for _ in range(30):
        foresight.timed("draft", 4, 0.016)
    assert foresight.expected(4) == pytest.approx(0.016, rel=0.01)
