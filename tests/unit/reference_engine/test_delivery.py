"""Threads that send: order, faults, the end."""

import threading

import numpy as np

from reference_engine.delivery import Delivery
from reference_engine.request import Finish, Output, Stats

SECONDS = 60.0


def test_a_lane_keeps_its_order_while_another_is_held_up() -> None:
    delivery, go = Delivery(), threading.Event()
    slow, fast = delivery.lane(), delivery.lane()
    done: list[str] = []
    passed = threading.Event()
    slow(lambda: done.append(f"slow {go.wait(SECONDS)}"))
    slow(lambda: done.append("slow 2"))
    fast(lambda: done.append("fast"))
    fast(passed.set)
    assert passed.wait(SECONDS)
    assert done == ["fast"]
    go.set()
    delivery.close(SECONDS)
    assert done == ["fast", "slow True", "slow 2"], "what was given is run before the end"


def fails() -> None:
    raise ValueError("a fault")


def test_a_fault_ends_no_lane() -> None:
    delivery = Delivery()
    lane, passed = delivery.lane(), threading.Event()
    lane(fails)
    lane(passed.set)
    assert passed.wait(SECONDS)
    delivery.close(SECONDS)


def test_two_outputs_are_one() -> None:
    first = Output([1], [-0.5], [np.zeros(3, np.float32)], Finish.NONE, Stats(cached_tokens=5))
    last = Output([2, 3], [-1.0, -2.0], [np.ones(3, np.float32)] * 2, Finish.LENGTH, Stats(cached_tokens=7))
    both = first.then(last)
    assert (both.tokens, both.log_probs, len(both.logits)) == ([1, 2, 3], [-0.5, -1.0, -2.0], 3)
    assert (both.finish, both.stats.cached_tokens) == (Finish.LENGTH, 7)
