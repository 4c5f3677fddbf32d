"""Few sequences that are drafted ahead while they are verified."""

from support.serving.calls import ask, end, group, names
from tandem_serving.bls.strategies.drafting_ahead import DraftingAhead


def test_whoever_needs_a_draft_gets_it_whatever_the_target_does() -> None:
    ahead, made = DraftingAhead(lambda key: False), group(5)
    ask(made, "ab", "cd")
    assert names(ahead.start(made)) == ["ab", "cd"]
    ask(made, "e", "ab")
    assert names(ahead.start(made)) == ["e"], "one verification at once"


def test_a_verification_waits_for_drafts_that_are_almost_done() -> None:
    almost = {"k"}
    ahead, made = DraftingAhead(almost.__contains__), group(4)
    ask(made, targets="ab")
    assert ahead.start(made) == []
    almost.clear()
    (verification,) = ahead.start(made)
    assert names([verification]) == ["ab"]
    end(made, verification)
    assert ahead.start(made) == []
