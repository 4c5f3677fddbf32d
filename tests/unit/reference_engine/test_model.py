import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference_engine import blas
from reference_engine.backend import Segment
from unit.reference_engine import invariance, tiny_llama

TESTS = Path(__file__).resolve().parents[2]
ENGINE = TESTS.parent / "images/reference"

SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("two query heads share a kv head", {}),
    ("every head has its own kv head", {"num_key_value_heads": 4}),
    ("one kv head, a group that does not divide the tile", {"num_attention_heads": 3, "num_key_value_heads": 1}),
    ("a group larger than the tile", {"num_attention_heads": 12, "num_key_value_heads": 1}),
    ("widths off every block", {"hidden_size": 50, "intermediate_size": 70, "head_dim": 10, "vocab_size": 65}),
    ("tied embeddings", {"tie_word_embeddings": True}),
    ("transformers 5's rope_parameters", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    ("linear scaling", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    (
        "Llama 3.1's scaling",
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
]


@pytest.mark.parametrize(("reason", "changes"), SHAPES, ids=[reason for reason, _ in SHAPES])
def test_logits_are_the_textbooks(reason: str, changes: dict[str, Any]) -> None:
    values = {**tiny_llama.CONFIG, **changes}
    model = tiny_llama.model(changes)
    ids = np.random.default_rng(1).integers(0, values["vocab_size"], 150).astype(np.int32)
    logits = model.forward([Segment(0, 0, ids, len(ids))])
    expected = tiny_llama.textbook_logits(values, ids)
    assert np.abs(expected).max() > 1, "the test's weights give flat logits: they show nothing"
    np.testing.assert_allclose(logits, expected, atol=2e-4)


@pytest.mark.parametrize(
    "shape", invariance.SHAPES, ids=["wide", "groups of three", "odd widths", "a group of twelve"]
)
def test_bits_do_not_depend_on_pieces_slots_or_company(shape: dict[str, Any]) -> None:
    invariance.check(tiny_llama.model(dict(shape)), seed=3, rounds=6)


def _runnable_cores() -> list[str]:
    """Kernels that OpenBLAS can run on this processor: the best, and all below it."""
    names = ["SkylakeX", "Haswell", "Prescott"]
    best = blas.best_core(blas._cpu_flags())
    return names[names.index(best) :] if best in names else [""]


@pytest.mark.parametrize("core", _runnable_cores())
def test_bits_do_not_depend_on_the_batch_with_other_kernels(core: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{ENGINE}"} | ({"OPENBLAS_CORETYPE": core} if core else {})
    command = [sys.executable, "-m", "unit.reference_engine.invariance"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "invariant\n", done.stderr


def test_copied_keys_and_values_give_the_same_bits() -> None:
    model = tiny_llama.model()
    ids = np.arange(90, dtype=np.int32)
    model.forward([Segment(0, 0, ids, 1)])
    model.copy_kv(0, 3, 70)
    expected = model.forward([Segment(0, 70, ids[70:], 5)]).copy()
    assert np.array_equal(model.forward([Segment(3, 70, ids[70:], 5)]), expected)
