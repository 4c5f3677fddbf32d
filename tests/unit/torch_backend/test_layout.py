import numpy as np
import pytest

from reference_engine.backend import Segment
from reference_engine.torch_backend.layout import (
    Input,
    Shape,
    most_rows,
    of_passes,
    of_prompts,
    of_verification,
    padded,
)

SPARE = 9


def segment(slot: int, start: int, count: int, logits: int) -> Segment:
    return Segment(slot, start, np.arange(start, start + count, dtype=np.int32), logits)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, 1),
        (2, 2),
        (3, 4),
        (5, 8),
        (8, 8),
        (9, 16),
        (16, 16),
        (17, 24),
        (33, 40),
        (65, 80),
        (129, 160),
        (300, 320),
        (385, 512),
        (1025, 1280),
    ],
)
def test_few_sizes_hold_all_counts(count: int, expected: int) -> None:
    assert padded(count) == expected
    assert padded(expected) == expected


CASES = [
    ("one decoded token", [(1, 7, 1, 1)], Shape(1, 1, 1, 1)),
    ("a verification", [(1, 7, 5, 5)], Shape(8, 1, 8, 8)),
    ("a verification of nine", [(1, 7, 9, 9)], Shape(16, 1, 16, 16)),
    ("three decoded and a prompt's piece", [(1, 7, 1, 1), (2, 0, 1, 1), (3, 1, 40, 0)], Shape(64, 32, 16, 64)),
    ("a long prompt alone yields one row of logits", [(1, 0, 500, 1)], Shape(512, 256, 16, 64)),
    ("two tokens to catch up with, and a verification of eight", [(1, 7, 10, 8)], Shape(16, 8, 16, 16)),
    ("many decoded, and a piece", [*((i, 7, 1, 1) for i in range(66)), (66, 1, 9, 0)], Shape(128, 128, 16, 128)),
]


@pytest.mark.parametrize(("reason", "parts", "expected"), CASES, ids=[reason for reason, _, _ in CASES])
def test_the_shape_of_a_pass(reason: str, parts: list[tuple[int, int, int, int]], expected: Shape) -> None:
    assert Shape.of([segment(*part) for part in parts]) == expected, reason


def test_a_pass_and_its_padding() -> None:
    segments = [segment(2, 30, 1, 1), segment(4, 0, 19, 0), segment(1, 6, 3, 3)]
    shape = Shape(24, 4, 16, 24)
    array = np.full(shape.entries, 77, np.int32)
    Input(array, shape, SPARE).fill(segments)
    ids, positions, slots, tile_row, tile_count, wanted = np.split(
        array, np.cumsum(list(shape.sizes().values()))[:-1]
    )
    assert ids.tolist() == [30, *range(19), 6, 7, 8, 0]
    assert positions.tolist() == [30, *range(19), 6, 7, 8, 0]
    assert slots.tolist() == [2, *[4] * 19, 1, 1, 1, SPARE]
    assert tile_row.tolist() == [0, 1, 17, 20]
    assert tile_count.tolist() == [1, 16, 3, 3]
    assert wanted.tolist() == [0, 20, 21, 22, *[0] * 20]


@pytest.mark.parametrize("length", [4, 7, 10])
def test_warm_shapes_hold_every_verification(length: int) -> None:
    warm = set(of_verification(max_rows=6, max_draft_len=length))
    for rows in range(1, 7):
        for tokens in range(1, length + 2):
            assert Shape.of([segment(slot, 50, tokens, tokens) for slot in range(rows)]) in warm
    uneven = [segment(0, 50, 2, 1), segment(1, 60, 1, 1), segment(2, 70, 5, 1)]
    assert Shape.of(uneven) in warm, "a draft's first step: some sequences have more tokens that are new to it"


def test_warm_shapes_hold_a_draft_s_first_step_of_many() -> None:
    warm = set(of_verification(max_rows=64, max_draft_len=7))
    for tokens in (2, 4, 6, 8):
        assert Shape.of([segment(slot, 50, tokens, 1) for slot in range(64)]) in warm


@pytest.mark.parametrize("most", [100, 512, 1000, 2048])
def test_warm_shapes_hold_prompts_beside_verifications(most: int) -> None:
    warm = set(of_prompts(most))
    for rows in (0, 1, 4, 16, 64):
        for tokens in (1, 2, 5, 8):
            for piece in {min(count, most - rows * tokens) for count in (9, 24, 100, 400, 1000, most)}:
                if piece <= 8:
                    continue
                segments = [segment(slot, 50, tokens, tokens) for slot in range(rows)]
                shape = Shape.of([*segments, segment(rows, 0, piece, 1)])
                assert shape in warm
                assert shape.tokens <= most_rows(most)


def test_no_shape_is_larger_than_the_memory_of_a_pass() -> None:
    assert max(each.tokens for each in of_verification(144, 7)) > most_rows(1024)
    passes = of_passes(144, 7, 1024)
    assert max(each.tokens for each in passes) == most_rows(1024) == 1024
    assert len(passes) == len(set(passes))


def test_graphs_for_prompts_are_few() -> None:
    assert len(of_prompts(1024)) <= 32
