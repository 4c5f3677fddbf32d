"""One vocabulary in tables of different size, as Qwen2.5 of 0.5B and 72B have it: the text is the target's alone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tritonclient.utils import InferenceServerException

from triton import bls_client as bls
from triton.bls_client import ids, inputs, stream, words
from triton.bls_servers import TEXTS
from triton.harness import TritonServer

ROWS = 24
EMBEDDING = "model.embed_tokens.weight"


def padded(role: str, folder: Path) -> None:
    """A model of the pair with more rows. Those of a draft are likely, so that it proposes them."""
    shutil.copytree(bls.PAIR / role, folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(str(folder / "model.safetensors"))
    table = tensors[EMBEDDING]
    more = np.repeat(2 * table[199:200], ROWS, axis=0) if role == "draft" else np.zeros_like(table[:ROWS])
    save_file({**tensors, EMBEDDING: np.concatenate([table, more])}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + ROWS}))


@pytest.fixture(scope="module", params=["draft", "target"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The larger table is the draft's, or the target's."""
    folder = tmp_path_factory.mktemp("padded")
    for role in ("draft", "target"):
        if role == request.param:
            padded(role, folder / "pair" / role)
        else:
            shutil.copytree(bls.PAIR / role, folder / "pair" / role)
    made = bls.repository(folder / "models", "reference", pair=folder / "pair", max_engine_rows=64)
    with TritonServer(made) as running:
        yield running


SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 20261121}


def asked(server: TritonServer, text: str, draft_length: int, **more: Any) -> tuple[list[int], int, int]:
    """Tokens of an answer, and how many were drafted and accepted."""
    chunks = stream(server.grpc_url, inputs(text, num_draft_tokens=draft_length, stream=True, **more))
    last = chunks[-1]
    return ids(chunks), int(last["total_draft_tokens"].item()), int(last["total_accepted_draft_tokens"].item())


@pytest.mark.parametrize("more", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_the_text_is_the_target_s(server: TritonServer, more: dict[str, Any]) -> None:
    accepted = 0
    for text in TEXTS[:8]:
        alone, drafts, _ = asked(server, text, 0, max_tokens=40, **more)
        together, _, kept = asked(server, text, 4, max_tokens=40, **more)
        assert (together, drafts) == (alone, 0)
        accepted += kept
    assert accepted > 0


def test_what_fits_one_table_alone(server: TritonServer) -> None:
    """A bias has a number for each row, and logits are compared row by row."""
    bias = {"embedding_bias_words": words(["self"]), "embedding_bias_weights": np.array([[4.0]], np.float32)}
    alone, together = (asked(server, TEXTS[0], k, max_tokens=20, **bias) for k in (0, 4))
    assert alone == together
    with pytest.raises(InferenceServerException, match="use_draft_logits is not supported: the target has"):
        stream(server.grpc_url, inputs(TEXTS[0], use_draft_logits=np.array([[True]])))
