"""A seed's samples where each engine call has a seed of its own (`mix_seed`): whatever the load and the schedule."""

import random
import threading
import time
import zlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from support.serving.bls import STREAM, Answer, MockCall, MockEngines, MockModel, Start, ask, tensors
from support.serving.steady import Steady
from tandem_serving.bls.batches import Row
from tandem_serving.bls.calls import Call, Output
from tandem_serving.bls.draft_length.policy import AdaptiveDraftLength
from tandem_serving.bls.sequence import BlsSequence

SEED, TOKENS = 7, 60
VOCABULARY = 96


def drawn(call: Call) -> list[int]:
    """Tokens by a call's seed, their place in the call, and the token before it: as TensorRT-LLM, whose random
    numbers begin anew with each call; without a seed by chance."""
    seed = random.random() if call.seed is None else call.seed
    return [1 + zlib.crc32(f"{seed} {i} {call.ids[-1]}".encode()) % VOCABULARY for i in range(call.output_len)]


class SeededCall(MockCall):
    """The draft is wrong at each fifth position; the target keeps what it would have drawn, and adds its own."""

    def __iter__(self) -> Iterator[list[tuple[int, Output]]]:
        self.engine.before(self.engine.role, self)
        time.sleep(0.003 * random.random())
        yield [(index, Output(self._row(row.call))) for index, row in enumerate(self.rows)]

    def _row(self, call: Call) -> list[int]:
        ids = drawn(call)
        if call.role == "draft":
            return [token + ((len(call.ids) + i) % 5 == 0) for i, token in enumerate(ids)]
        kept = next((i for i, pair in enumerate(zip(ids, call.draft_ids, strict=False)) if len({*pair}) > 1), None)
        return ids if kept is None else ids[: kept + 1]


class SeededModel(MockModel):
    def call(self, rows: Sequence[Row[BlsSequence]]) -> MockCall:
        self.calls.append(SeededCall(self, rows))
        return self.calls[-1]


def engines() -> MockEngines:
    made = MockEngines()
    made.target, made.draft = (SeededModel(each.role, each.model, each.before) for each in (made.target, made.draft))
    return made


def sampled(seed: int | None, **more: Any) -> dict[str, Any]:
    asked = tensors("def add(", max_tokens=TOKENS, end_id=np.array([[-1]], np.int32), **more)
    return asked | {"top_k": np.array([[5]], np.int32)} | ({"seed": np.array([[seed]], np.uint64)} if seed else {})


def ids(answer: Answer) -> list[int]:
    assert answer.wait().error is None, answer.error
    return [token for chunk in answer.chunks for token in chunk.ids]


SCHEDULES: list[tuple[str, AdaptiveDraftLength, dict[str, Any]]] = [
    ("alternating", Steady(4, separate_devices=True), {}),
    ("fixed, in the order that is faster", AdaptiveDraftLength(4, 4, separate_devices=True), {}),
    ("adaptive, micro-batches", AdaptiveDraftLength(0, 4, separate_devices=True, batched=True), {}),
    ("adaptive, lock-step", AdaptiveDraftLength(0, 4, separate_devices=False, batched=True), {}),
    (
        "adaptive, each by itself",
        AdaptiveDraftLength(0, 4, separate_devices=True, batched=False),
        {"max_rows": 1},
    ),
]


@pytest.mark.parametrize(("what", "policy", "options"), SCHEDULES, ids=[what for what, *_ in SCHEDULES])
def test_a_seed_gives_the_same_whatever_runs_beside_it(
    start: Start, what: str, policy: AdaptiveDraftLength, options: dict[str, Any]
) -> None:
    made = engines()
    service = start(made, policy=policy, mix_seed=True, **options)
    alone = ids(ask(service, sampled(SEED)))
    assert len(alone) == TOKENS
    for _ in range(2):
        asked = []
        for i in range(24):
            seed = (SEED, None, 100 + i)[i % 3]
            asked.append((seed, ask(service, sampled(seed, **(STREAM if i % 2 else {})))))
            time.sleep(0.003 * random.random())
        answers = [(seed, ids(answer)) for seed, answer in asked]
        assert [answer for seed, answer in answers if seed == SEED] == [alone] * 8
        assert len({tuple(answer) for seed, answer in answers if seed != SEED}) == 16, "others are drawn otherwise"
    assert made.draft.calls, "with drafts"


def test_a_seed_s_samples_share_calls_with_others(start: Start) -> None:
    """Drafts of one length in a call: the policy gives the others shorter ones, which cannot be filled up."""
    made, all_asked = engines(), threading.Event()
    for model in (made.draft, made.target):
        model.before = lambda role, call: all_asked.wait(60)
    service = start(made, policy=Shorter(4, separate_devices=False), mix_seed=True)
    answers = [ask(service, sampled(100 + i if i % 2 else None)) for i in range(12)]
    all_asked.set()
    for answer in answers:
        ids(answer)
    drafts = [len(call.rows) for call in made.draft.calls]
    assert max(drafts) > 6, "those with a seed and those without"
    checked = [[len(row.call.draft_ids) for row in call.rows] for call in made.target.calls]
    assert all(len({*lengths}) == 1 for lengths in checked)
    for length in (2, 4):
        assert max(lengths.count(length) for lengths in checked) > 3, f"{length} draft tokens, together"


class Shorter(Steady):
    """Half as long drafts for those who leave the length to the policy."""

    def length(self, sequence: Hashable) -> int:
        return super().length(sequence) // 2


@pytest.mark.parametrize(
    ("more", "reproducible"), [({"top_k": 5}, True), ({"top_k": 1}, False), ({}, False)], ids=str
)
def test_only_a_drawn_seed_keeps_to_one_draft_length(start: Start, more: dict[str, int], reproducible: bool) -> None:
    """Greedy tokens do not depend on it."""
    service = start(engines(), mix_seed=True)
    made, make = list[BlsSequence](), service._sequence
    service._sequence = lambda *how: made.append(make(*how)) or made[-1]  # type: ignore[method-assign, func-returns-value]
    inputs = tensors("def add(", seed=np.array([[7]], np.uint64))
    ids(ask(service, inputs | {name: np.array([[value]], np.int32) for name, value in more.items()}))
    assert [each.reproducible for each in made] == [reproducible]
