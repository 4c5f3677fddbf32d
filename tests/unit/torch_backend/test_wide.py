"""The bench's pair in large shapes computes what the small one does (here: larger shapes that a CPU can take)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from bench.gpu import wide  # noqa: E402
from reference_engine.backend import Segment  # noqa: E402
from reference_engine.torch_backend import attention, loading  # noqa: E402
from reference_engine.torch_backend.loading import Sizes  # noqa: E402

PAIR = Path(__file__).resolve().parents[3] / "images/reference/pair"
VOCABULARY = 2048


@pytest.mark.parametrize(("role", "layers"), [("target", 13), ("draft", 4)])
def test_logits_are_the_small_model_s(role: str, layers: int) -> None:
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        hidden_size=384, intermediate_size=640, num_hidden_layers=layers, num_attention_heads=8, head_dim=128,
        num_key_value_heads=2, vocab_size=2100, tie_word_embeddings=False, max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip

    def make(values: Any) -> Any:
        kind = transformers.AutoModelForCausalLM
        return kind.from_config(values, dtype=torch.float32, attn_implementation=attention.NAME)

    golden = np.load(PAIR / "golden.npz")
    model = loading.build(wide.module(PAIR / role, config, make), Sizes(1, 512, 512), compiled=False)
    ids, expected = golden["prompt_3"], golden[f"{role}_logits_3"]
    logits = model.forward([Segment(0, 0, ids, len(expected))]).values[: len(expected)].numpy()
    np.testing.assert_allclose(logits[:, :VOCABULARY], expected, atol=1e-4, rtol=0)
    assert logits[:, VOCABULARY:].max() < -100, "a further row of the vocabulary could be drawn"
