"""The bench's pair in large shapes as checkpoints: what is read from them computes what the small models do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from bench.gpu import checkpoints, wide  # noqa: E402
from reference_engine.backend import Segment  # noqa: E402
from reference_engine.torch_backend import attention, loading  # noqa: E402
from reference_engine.torch_backend.loading import Sizes  # noqa: E402
from tandem_serving import checkpoint  # noqa: E402
from tandem_serving.requests.tokenizer import Tokenizer  # noqa: E402


def test_a_written_checkpoint_is_read_as_any_other(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        hidden_size=384, intermediate_size=640, num_hidden_layers=4, num_attention_heads=8, head_dim=128,
        num_key_value_heads=2, vocab_size=2100, tie_word_embeddings=False, max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip

    def make(values: Any) -> Any:
        kind = transformers.AutoModelForCausalLM
        return kind.from_config(values, dtype=torch.float32, attn_implementation=attention.NAME)

    small = checkpoints.PAIR / "draft"
    checkpoints.write(wide.module(small, config, make), small, tmp_path)

    read = loading.read(tmp_path, torch.float32, "cpu")
    model = loading.build(read, Sizes(1, 512, 512), compiled=False)
    golden = np.load(checkpoints.PAIR / "golden.npz")
    ids, expected = golden["prompt_3"], golden["draft_logits_3"]
    logits = model.forward([Segment(0, 0, ids, len(expected))]).values[: len(expected)].numpy()
    np.testing.assert_allclose(logits[:, : expected.shape[1]], expected, atol=1e-4, rtol=0)
    limits = checkpoint.read_limits(tmp_path)
    assert (limits.vocab_size, limits.max_sequence_len) == (2100, 1024)
    assert Tokenizer(tmp_path).end_ids == Tokenizer(small).end_ids
