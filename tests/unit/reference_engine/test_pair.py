"""The pair in the engine against transformers' LlamaForCausalLM (golden.npz, made by training/golden.py)."""

from pathlib import Path

import numpy as np
import pytest

from reference_engine import engine
from reference_engine.backend import Segment
from reference_engine.request import Output, Request

PAIR = Path(__file__).resolve().parents[3] / "images/reference/pair"
TOLERANCE = 1e-4  # absolute; 5e-5 was measured, rounding of float32 in another order
PROMPTS = 5


@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_are_transformers(role: str) -> None:
    golden = np.load(PAIR / "golden.npz")
    scheduler = engine.load(engine.Settings(PAIR / role, max_num_sequences=1))
    for i in range(PROMPTS):
        expected = golden[f"{role}_logits_{i}"]
        ids = golden[f"prompt_{i}"]
        logits = scheduler._model.forward([Segment(0, 0, ids, len(expected))])
        np.testing.assert_allclose(logits, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_greedy_continuations_are_transformers(role: str) -> None:
    golden = np.load(PAIR / "golden.npz")
    scheduler = engine.load(engine.Settings(PAIR / role, max_num_sequences=PROMPTS))
    outputs: dict[int, list[int]] = {}
    for i in range(PROMPTS):

        def sink(output: Output, i: int = i) -> None:
            outputs[i] = output.tokens

        scheduler.submit(Request(golden[f"prompt_{i}"], max_new_tokens=len(golden[f"{role}_greedy_{i}"])), sink)
    while not scheduler.idle:
        scheduler.step()
    assert outputs == {i: golden[f"{role}_greedy_{i}"].tolist() for i in range(PROMPTS)}
