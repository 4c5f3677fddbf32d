"""A tool that writes its edit again and again is not fought for ever."""

from types import SimpleNamespace
from typing import Any

import pytest

from support.world import applied
from tandem.process.reverts import MOST, PAUSE_SECONDS, Reverts
from tandem.rollout.observed import Live
from tandem.rollout.plan import Action, Apply, Delete

WANTED: dict[str, Any] = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}}


def edited(field: str = "paused", value: Any = True, wanted: Any = WANTED) -> Apply:
    """What reverts the edit of a field."""
    live = applied(WANTED)
    live["spec"][field] = value
    live["metadata"]["managedFields"].append(
        {"manager": "me", "operation": "Update", "fieldsV1": {"f:spec": {f"f:{field}": {}}}}
    )
    return Apply(wanted, Live("Deployment", "d", manifest=live))


class Clocked(Reverts):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        monkeypatch.setattr("tandem.process.reverts.time", SimpleNamespace(monotonic=lambda: self.now))

    def carried_out(self, action: Action, service: str = "a") -> bool:
        """Whether it was let through, and then done."""
        left, given_up = self.limited(service, [action])
        self.note(service, left)
        assert bool(left) is not bool(given_up)
        return bool(left)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    return Clocked(monkeypatch)


def test_the_same_edit_is_reverted_so_often_and_left_for_an_hour(known: Clocked) -> None:
    assert [known.carried_out(edited(value=n)) for n in range(MOST + 2)] == [True] * MOST + [False] * 2
    (shown,) = known.limited("a", [edited()])[1]
    assert (shown.kind, shown.name, shown.times, shown.written) == ("Deployment", "d", MOST, "me wrote spec.paused")
    known.now = PAUSE_SECONDS - 1
    assert not known.carried_out(edited())
    known.now = PAUSE_SECONDS
    assert [known.carried_out(edited()) for _ in range(MOST + 1)] == [True] * MOST + [False]


OTHERS: list[tuple[str, Action]] = [
    ("another field", edited("minReadySeconds")),
    ("something else is wanted", edited(wanted={**WANTED, "spec": {"replicas": 2}})),
    ("it is not there", Apply(WANTED, None)),
    ("it goes", Delete(Live("Deployment", "d"))),
]


@pytest.mark.parametrize(("what", "action"), OTHERS, ids=[row[0] for row in OTHERS])
def test_all_else_goes_on(known: Clocked, what: str, action: Action) -> None:
    while known.carried_out(edited()):
        pass
    assert known.carried_out(action), what


def test_an_autoscaler_that_goes_up_and_down_is_no_fight(known: Clocked) -> None:
    """Each time the operator applies what it applied before, over fields that are its own."""
    for _ in range(4 * MOST):
        for count in (1, 2):
            wanted = {**WANTED, "spec": {"replicas": count}}
            live = Live("Deployment", "d", manifest=applied({**WANTED, "spec": {"replicas": 3 - count}}))
            assert known.carried_out(Apply(wanted, live))


def test_edits_now_and_then_are_all_reverted(known: Clocked) -> None:
    for _ in range(4 * MOST):
        known.now += PAUSE_SECONDS / (MOST - 1) + 1
        assert known.carried_out(edited())


def test_a_service_is_one_of_many(known: Clocked) -> None:
    while known.carried_out(edited()):
        pass
    assert known.carried_out(edited(), "b")
    known.forget("a")
    assert known.carried_out(edited()), "made anew"


def test_nothing_is_kept_of_what_is_long_over(known: Clocked) -> None:
    for field in "abcdefgh":
        known.carried_out(edited(field))
    known.now = PAUSE_SECONDS
    known.carried_out(edited())
    assert len(known._fights["a"]) == 1
