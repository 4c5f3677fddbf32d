"""Rounds that the server makes: how many at once, and who goes on with whom."""

import pytest

from support.serving.calls import ask, end, group, names, routes, row
from tandem_serving.bls.calls import ServerRound
from tandem_serving.bls.strategies.server_rounds import ServerRounds


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_of_the_target_join_a_round_whenever_they_come() -> None:
    rounds, made = ServerRounds(), group(5)
    ask(made, "abc", "d")
    assert routes(rounds.start(made)) == [("round", "abc"), ("join", "d")]
    ask(made, targets="e")
    assert routes(rounds.start(made)) == [("join", "e")], "it is for the server to say which verification it joins"
    ask(made, "f")
    assert rounds.start(made) == [], "one round at once"


def test_drafts_from_before_there_were_rounds_are_verified_by_themselves() -> None:
    """What joins a round is filled up with made-up draft tokens: it must not have others."""
    made = group(3)
    ask(made, targets="a")
    verification = row("b", "target")
    made.waiting["target"].append(verification._replace(call=verification.call._replace(draft_ids=(1, 2))))
    assert routes(ServerRounds().start(made)) == [("join", "a"), ("target", "b")]


def test_of_many_sequences_the_server_makes_two_rounds_at_once() -> None:
    rounds, made = ServerRounds(lambda _: 2), group(8)
    ask(made, "abcd")
    started = rounds.start(made)
    assert routes(started) == [("round", "abcd")]
    assert all(batch.makes_way for batch in started)
    ask(made, "ef")
    assert rounds.start(made) == [], "a small one would take steps of the engines for itself, round after round"
    ask(made, "gh", "i")
    assert routes(rounds.start(made)) == [("round", "efgh"), ("join", "i")]
    ask(made, "jklm")
    assert rounds.start(made) == [], "two at once"


TOGETHER = ServerRound(0.008, 0.012, group=7, members=2)
LANDINGS = [
    # what lands, in order: by name with what the server reports; what has started at the end
    ([("abc", TOGETHER), ("d", TOGETHER)], [("round", "abcd")], "verified together: they go on together"),
    ([("d", TOGETHER), ("abc", TOGETHER)], [("round", "dabc")], "in either order"),
    ([("abc", TOGETHER)], [], "one of them is still to land"),
    ([("abc", TOGETHER._replace(members=1))], [("round", "abc")], "d came too late: it joins the next"),
    ([("abc", None)], [("round", "abc")], "a round that failed says nothing of d"),
]


@pytest.mark.parametrize(("landings", "started", "reason"), LANDINGS)
def test_who_was_verified_together_begins_the_next_round_together(
    landings: list[tuple[str, ServerRound | None]], started: list[tuple[str, str]], reason: str
) -> None:
    rounds, made = ServerRounds(clock=Clock()), group(4)
    ask(made, "abc", "d")
    in_flight = {names([batch])[0]: batch for batch in rounds.start(made)}
    begun = []
    for name, server_round in landings:
        rounds.verified(server_round)
        end(made, in_flight[name])
        ask(made, name)
        begun += routes(rounds.start(made))
    assert begun == started, reason


def test_an_answer_that_is_lost_holds_up_the_others_for_a_moment_only() -> None:
    clock = Clock()
    rounds, made = ServerRounds(clock=clock), group(4)
    ask(made, "abc", "d")
    round_, _ = rounds.start(made)
    rounds.verified(TOGETHER)
    end(made, round_)
    ask(made, "abc")
    assert rounds.start(made) == []
    clock.now = 0.02
    assert routes(rounds.start(made)) == [("round", "abc")]
