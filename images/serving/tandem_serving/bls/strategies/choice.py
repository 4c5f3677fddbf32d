"""Which strategy a group has: by what the server can do for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tandem_serving.bls.batches import BatchKey, Group, S
from tandem_serving.bls.draft_length.policy import DraftLengthPolicy
from tandem_serving.bls.limits import RoundLimits
from tandem_serving.bls.strategies.filled_steps import FilledSteps
from tandem_serving.bls.strategies.server_rounds import ServerRounds
from tandem_serving.bls.strategies.strategy import Strategy
from tandem_serving.bls.strategies.waves import Waves


class Choice:
    """`due(key)`: until when a verification of these sequences waits for drafts that are almost done; 0: for none.

    `held`: the latest of these times that a strategy was given since this was set to 0.
    """

    def __init__(
        self,
        policy: DraftLengthPolicy,
        limits: RoundLimits,
        due: Callable[[Hashable], float],
        clock: Callable[[], float],
    ) -> None:
        self.held = 0.0
        self.server_rounds = ServerRounds(policy.micro_batches, clock)
        self._limits = limits
        self._due = due
        self._waves = Waves(policy.micro_batches)

    def of(self, group: Group[S]) -> Strategy:
        """A group's strategy."""
        in_server = self._limits.whole_rounds and isinstance(group.key, BatchKey) and group.key.whole_rounds
        return self.server_rounds if in_server else self._waves

    def filled_steps(self) -> FilledSteps[S]:
        """Of all groups, where a step does not take their batches."""
        return FilledSteps(self._limits.steps, self._almost_drafted)

    def _almost_drafted(self, key: Hashable) -> bool:
        until = self._due(key)
        self.held = max(self.held, until)
        return until > 0
