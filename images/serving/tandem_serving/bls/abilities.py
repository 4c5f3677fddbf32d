"""What a service's TensorRT engines cannot answer, by the flag that asks for it: read from their config.json.

TensorRT-LLM would fail the call, answer wrongly, or keep the sequence's memory for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint

_GATHER = "built without gather_generation_logits: write speculation.acceptance.method: Logits"


def refused(target: Path, draft: Path | None, fast_logits: bool) -> dict[str, str]:
    """Flags of requests, and why they cannot be served. Raises CheckpointError.

    `fast_logits`: the engines hand logits over between themselves. Folders of other engines refuse nothing.
    """
    flags: dict[str, str] = {}
    built = _build(target)
    if built and draft and built.get("max_draft_len"):
        # externalDraftTokensLayer.cpp samples without any: what the backend answers is 0 for each token.
        flags["return_log_probs"] = "an engine that verifies draft tokens computes none"
    if built and not built.get("gather_generation_logits", True):
        flags["return_generation_logits"] = f"the target's engine was {_GATHER}"
    elif fast_logits:
        # trtGptModelInflightBatching.cpp, updateRequests: the sequence waits for another engine to fetch them.
        flags["return_generation_logits"] = "with acceptance.fastLogits the engines keep them to themselves"
    if draft and not (_build(draft) or {}).get("gather_generation_logits", True):
        flags["use_draft_logits"] = f"the draft's engine was {_GATHER}"
    elif draft and _rows(target) != _rows(draft):
        flags["use_draft_logits"] = f"the target has {_rows(target)} logits a token, the draft {_rows(draft)}"
    return flags


def _rows(folder: Path) -> object:
    config = checkpoint.read_json(folder / "config.json")
    return checkpoint.language_model(config.get("pretrained_config") or config).get("vocab_size")


def _build(folder: Path) -> Mapping[str, Any] | None:
    """How an engine was built; None: it is no TensorRT engine."""
    build = checkpoint.read_json(folder / "config.json").get("build_config")
    return build if isinstance(build, dict) else None
