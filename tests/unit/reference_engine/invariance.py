"""Whether the bits of a position's logits depend on how they were computed: a check for tests and by hand.

`python -m unit.reference_engine.invariance` runs it with OpenBLAS as the environment says.
"""

import sys

import numpy as np
import numpy.typing as npt

from reference_engine.backend import Segment
from reference_engine.model import Llama
from unit.reference_engine import tiny_llama

Logits = npt.NDArray[np.float32]
SHAPES = (
    {"hidden_size": 128, "intermediate_size": 192, "head_dim": 64},
    {"hidden_size": 96, "intermediate_size": 600, "num_attention_heads": 6, "num_key_value_heads": 2},
    {"hidden_size": 40, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 10},
    {"num_attention_heads": 12, "num_key_value_heads": 1},
)


def check(model: Llama, seed: int, rounds: int) -> None:
    """Raises AssertionError where the bits differ.

    Sequences are computed once whole and alone, and again in random pieces, slots and company.
    """
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        lengths = rng.integers(1, 200, rng.integers(1, 5))
        sequences = [rng.integers(0, model.config.vocab_size, n).astype(np.int32) for n in lengths]
        whole = [model.forward([Segment(0, 0, ids, len(ids))]).copy() for ids in sequences]
        for index, (ids, pieced) in enumerate(zip(whole, _in_pieces(model, sequences, rng), strict=True)):
            assert np.array_equal(ids, pieced), f"sequence {index} of lengths {lengths.tolist()} differs"


def _in_pieces(model: Llama, sequences: list[npt.NDArray[np.int32]], rng: np.random.Generator) -> list[Logits]:
    """The same logits, from passes with a random piece of some of the sequences each."""
    slots = rng.permutation(4)[: len(sequences)]
    results = [np.empty((len(ids), model.config.vocab_size), np.float32) for ids in sequences]
    done = [0] * len(sequences)
    while any(at < len(ids) for at, ids in zip(done, sequences, strict=True)):
        batch, places = [], []
        for i in rng.permutation(len(sequences)):
            count = min(len(sequences[i]) - done[i], int(rng.choice([1, 1, 2, 5, 8, 9, 64, 70])))
            if count and rng.random() < 0.8:
                batch.append(Segment(int(slots[i]), done[i], sequences[i][done[i] : done[i] + count], count))
                places.append(results[i][done[i] : done[i] + count])
                done[i] += count
        if batch:
            _copy_rows(model.forward(batch), places)
    return results


def _copy_rows(logits: Logits, places: list[Logits]) -> None:
    row = 0
    for place in places:
        place[:] = logits[row : row + len(place)]
        row += len(place)


if __name__ == "__main__":
    for number, shape in enumerate(SHAPES):
        check(tiny_llama.model(dict(shape), seed=number), seed=number, rounds=6)
    sys.stdout.write("invariant\n")
