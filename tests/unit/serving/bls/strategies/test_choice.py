"""Which strategy a group has."""

import pytest

from tandem_serving.bls.batches import BatchKey, Group
from tandem_serving.bls.step_limits import StepLimits
from tandem_serving.bls.strategies.choice import Choice
from tandem_serving.bls.strategies.server_rounds import ServerRounds
from tandem_serving.bls.strategies.waves import Waves


@pytest.mark.parametrize(
    ("in_server", "whole_rounds", "strategy", "reason"),
    [
        (True, True, ServerRounds, "the server can, and may for these sequences"),
        (True, False, Waves, "their drafts must not be padded, or their engines get different tensors"),
        (False, True, Waves, "no model makes rounds"),
    ],
)
def test_the_server_makes_rounds_where_it_can_and_may(
    in_server: bool, whole_rounds: bool, strategy: type, reason: str
) -> None:
    choice = Choice(lambda _: 2, in_server, clock=lambda: 0.0)
    group: Group[str] = Group(BatchKey("tensors", whole_rounds), StepLimits(64), members=8)
    assert isinstance(choice.of(group), strategy), reason
    assert choice.of(group).micro_batches(8) == 2
