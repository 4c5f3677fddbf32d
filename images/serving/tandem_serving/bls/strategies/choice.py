"""Which strategy a group has: by what the server can do for it."""

from __future__ import annotations

from collections.abc import Callable

from tandem_serving.bls.batches import BatchKey, Group, S
from tandem_serving.bls.strategies.server_rounds import ServerRounds
from tandem_serving.bls.strategies.strategy import Strategy
from tandem_serving.bls.strategies.waves import Waves


class Choice:
    """`micro_batches(n)`: into how many n sequences are divided; `in_server`: whether the server may make rounds."""

    def __init__(self, micro_batches: Callable[[int], int], in_server: bool, clock: Callable[[], float]) -> None:
        self.server_rounds = ServerRounds(micro_batches, clock)
        self._waves = Waves(micro_batches)
        self._in_server = in_server

    def of(self, group: Group[S]) -> Strategy:
        """A group's strategy."""
        in_server = self._in_server and isinstance(group.key, BatchKey) and group.key.whole_rounds
        return self.server_rounds if in_server else self._waves
