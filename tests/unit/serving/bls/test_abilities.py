"""Which flags of requests the engines of a service cannot serve."""

import json
from pathlib import Path
from typing import Any

import pytest

from tandem_serving.bls.abilities import refused

HUGGING_FACE: dict[str, Any] = {"max_position_embeddings": 2048, "vocab_size": 300}


def built(draft_len: int = 0, gathers: bool = False) -> dict[str, Any]:
    """As trtllm-build writes it."""
    return {"build_config": {"max_seq_len": 64, "max_draft_len": draft_len, "gather_generation_logits": gathers}}


@pytest.mark.parametrize(
    ("target", "draft", "fast", "flags", "reason"),
    [
        (HUGGING_FACE, HUGGING_FACE, False, set(), "the reference engine answers all"),
        (
            built(4),
            built(),
            False,
            {"return_log_probs", "return_generation_logits", "use_draft_logits"},
            "engines for acceptance by match: calls for logits would fail",
        ),
        (built(4, gathers=True), built(gathers=True), False, {"return_log_probs"}, "by logits: 0 for each token"),
        (
            built(4, gathers=True),
            built(gathers=True),
            True,
            {"return_log_probs", "return_generation_logits"},
            "with fast logits a handle is answered, and the sequence's blocks are never freed",
        ),
        (built(), None, False, {"return_generation_logits"}, "the target alone samples with log probs"),
        (built(63, gathers=True), None, False, set(), "a draft in the engine itself: not known, so the engine says"),
        (
            {**HUGGING_FACE, "vocab_size": 320},
            HUGGING_FACE,
            False,
            {"use_draft_logits"},
            "padded tables: logits of the two cannot be compared",
        ),
        ({"build_config": {"max_seq_len": 64}}, None, False, set(), "an engine that does not say"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_flags(
    target: dict[str, Any], draft: dict[str, Any] | None, fast: bool, flags: set[str], reason: str, tmp_path: Path
) -> None:
    folders = {"target": target, "draft": draft}
    for name, config in folders.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    assert refused(tmp_path / "target", tmp_path / "draft" if draft else None, fast).keys() == flags, reason
