import numpy as np
import numpy.typing as npt
import pytest

from reference_engine.kv_cache import BLOCK
from reference_engine.slots import Lease, Slots

Ids = npt.NDArray[np.int32]

A: Ids = np.arange(1, 200, dtype=np.int32)
B: Ids = np.arange(1000, 1200, dtype=np.int32)


def joined(*parts: Ids) -> Ids:
    ids: Ids = np.concatenate(parts)
    return ids


def used(slots: Slots, *texts: Ids) -> None:
    """Each text in a slot of its own, in this order of use, all free again."""
    leases = [slots.acquire(text, 0) for text in texts]
    for lease, text in zip(leases, texts, strict=True):
        assert lease is not None
        slots.record(lease.slot, text)
        slots.release(lease.slot)


CASES = [
    ("nothing in common: the slot used longest ago", [A[:80], B[:80]], B[100:120], Lease(0, 0, 0)),
    ("continues its own slot", [A[:80], B[:80]], B[:90], Lease(1, 80, 1)),
    ("a few rejected tokens are given up in place", [A[:80], B[:80]], joined(B[:76], A[:9]), Lease(1, 76, 1)),
    ("another text's long tail is kept, its head copied", [A[:80], B[:150]], joined(B[:70], A[:9]), Lease(0, 70, 1)),
    ("the last token is always computed", [A[:80], B[:80]], B[:80], Lease(1, 79, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "texts", "prompt", "expected"), CASES, ids=[row[0] for row in CASES])
def test_where_a_sequence_goes(reason: str, texts: list[Ids], prompt: Ids, expected: Lease) -> None:
    slots = Slots(len(texts), 256)
    used(slots, *texts)
    assert slots.acquire(prompt, len(prompt) - 1) == expected


def test_the_slot_used_longest_ago_is_given_away() -> None:
    slots = Slots(3, 256)
    leases = [slots.acquire(A[:20], 0) for _ in range(3)]
    assert [lease and lease.slot for lease in leases] == [0, 1, 2]
    for slot in (2, 0, 1):
        slots.release(slot)
    lease = slots.acquire(B[:20], 19)
    assert lease is not None
    assert lease.slot == 2


def test_a_text_that_is_being_replaced_is_not_found() -> None:
    slots = Slots(2, 256)
    used(slots, A[:40], B[:40])
    assert slots.acquire(joined(A[:30], B[:9]), 38) == Lease(0, 30, 0)
    assert slots.acquire(A[:40], 39) == Lease(1, 30, 0), "the other ten are being overwritten"


def test_a_busy_slot_is_copied_never_taken() -> None:
    slots = Slots(2, 256)
    first = slots.acquire(A[:70], 69)
    assert first == Lease(0, 0, 0)
    slots.record(0, A[:70])
    assert slots.acquire(A[:75], 74) == Lease(1, 70, 0)
    assert slots.acquire(A[:75], 74) is None, "both are busy"
    slots.release(0)
    assert slots.acquire(B[:5], 4) == Lease(0, 0, 0)


def test_what_a_slot_lost_is_not_found_again() -> None:
    slots = Slots(1, 256)
    used(slots, A[:150])
    lease = slots.acquire(joined(A[:20], B[:20]), 39)
    assert lease == Lease(0, 20, 0), "the only slot is used, whatever it loses"
    slots.record(0, joined(A[:20], B[:20]))
    slots.release(0)
    assert slots.acquire(A[:150], 149) == Lease(0, 20, 0)


def test_a_block_is_what_a_tail_is_worth() -> None:
    for tail, slot in ((BLOCK - 1, 1), (BLOCK, 0)):
        slots = Slots(2, 256)
        used(slots, B[:10], A[: 30 + tail])
        lease = slots.acquire(joined(A[:30], B[50:60]), 39)
        assert lease is not None
        assert lease.slot == slot


def led(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on only a text's last blocks may lead to a slot."""
    monkeypatch.setattr(slots, "_longest", lambda tokens, limit: pytest.fail("all slots were compared"))


def text(seed: int, count: int) -> Ids:
    """Texts of one beginning, longer than a block."""
    own = np.random.default_rng(seed).integers(0, 9999, count).astype(np.int32)
    return joined(A[:100], own)


GOES_ON = [
    ("a few tokens more", 0, 3),
    ("over the end of a block", 0, 60),
    ("a draft's tail lost", 5, 3),
    ("a tail lost from which a block began", 40, 3),
    ("the same again", 0, 0),
]


@pytest.mark.parametrize(("reason", "lost", "more"), GOES_ON, ids=[row[0] for row in GOES_ON])
def test_a_text_that_goes_on_is_not_looked_for(
    reason: str, lost: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = Slots(3, 512)
    texts = [text(i, 180) for i in range(3)]
    used(slots, *texts)
    led(slots, monkeypatch)
    grown = joined(texts[1][: 280 - lost], B[:more])
    expected = min(280 - lost, len(grown) - 1)
    assert slots.acquire(grown, len(grown) - 1) == Lease(1, expected, 1), reason


def test_a_slot_that_has_another_text_by_now_is_not_taken_for_the_old_one() -> None:
    slots = Slots(2, 512)
    old, new = text(0, 180), joined(text(0, 180)[:120], B[:160])
    used(slots, old)
    lease = slots.acquire(new, 279)
    assert lease == Lease(1, 120, 0), "the old text's tail is kept"
    slots.record(1, new)
    slots.release(1)
    slots.acquire(new, 279)
    slots.acquire(B[:80], 79)
    slots.record(0, B[:80])
    slots.release(0)
    slots.release(1)
    assert slots.acquire(old, 279) == Lease(0, 120, 1)


def test_what_leads_to_slots_does_not_grow() -> None:
    slots = Slots(2, 512)
    for seed in range(20):
        used(slots, text(seed, 180))
    assert len(slots._by_block) == 4


ROUNDS_OF = 40
"""Rounds in which one of the texts ends."""


def computed(spare: int, texts: int = 16) -> float:
    """Tokens computed for each that is generated, by `texts` sequences in rounds of 3 tokens each, all of a round at
    once. After each round a text ends; the next prompt comes before the others' next calls."""
    slots = Slots(texts + spare, 512)
    running = [text(i, 200 + 3 * i) for i in range(texts)]
    work, made = 0, 0
    for seed in range(ROUNDS_OF):
        leases = []
        for tokens in running:
            lease = slots.acquire(tokens, len(tokens) - 1)
            assert lease is not None
            leases.append(lease)
            work, made = work + len(tokens) - lease.reused, made + 3
        running = [joined(tokens, B[:3]) for tokens in running]
        for lease, tokens in zip(leases, running, strict=True):
            slots.record(lease.slot, tokens[:-1])
            slots.release(lease.slot)
        running = [text(1000 + seed, 200), *running[:-1]]
    return work / made


def test_with_spare_slots_no_text_that_goes_on_is_computed_again() -> None:
    """Each round computes a new prompt, 200 tokens of its own, and some for each other text."""
    prompts = 200 / (16 * 3)
    assert computed(spare=2) < 2 * prompts
    assert computed(spare=0) > 10 * prompts, "else no slot need be spare"
