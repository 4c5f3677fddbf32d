"""Model repositories for tests, rendered from the operator's own templates."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem.api.bounds import BLS_SEQUENCES
from tandem.render.v1.bls import CODELESS
from tandem.render.v1.bls_variables import DRAFT_TIMEOUT_SECONDS, BlsVariables, ModelVariables
from tandem.render.v1.stack import config
from triton import backends
from triton.harness import REPOSITORY_ROOT

ENGINES = REPOSITORY_ROOT / "images/reference/models"
SERVING = REPOSITORY_ROOT / "images/serving/models"
CLIENT_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
COLLECTORS = tuple(f"{name}_collector" for name in CLIENT_MODELS)
STREAMS = ("tensorrt_llm_engine_streams",)
ROUNDS = ("tensorrt_llm_engine_rounds",)
LIBRARIES = {
    **dict.fromkeys(COLLECTORS, backends.collector),
    **dict.fromkeys(ROUNDS, backends.rounds),
    **dict.fromkeys(STREAMS, backends.streams),
}
"""What makes the libraries of the models in C++."""
SOURCES = {
    **dict.fromkeys(CLIENT_MODELS, SERVING / "engine_unary"),
    **dict.fromkeys((f"{name}_engine" for name in CLIENT_MODELS), ENGINES / "tensorrt_llm"),
}
"""Folders of the models in Python that are not of their name."""


def variables(target: Path, draft: Path | None, **changes: Any) -> BlsVariables:
    """What the operator gives the templates, for models in these folders.

    `changes` replaces single variables: max_batch_size, max_draft_len, request_timeout_seconds, ...
    """
    values = BlsVariables(
        target=_model(target),
        draft=_model(draft) if draft else None,
        max_batch_size=64,
        max_draft_len=8 if draft else 0,
        min_draft_len=0,
        adaptive=False,
        probe_share=0,
        use_draft_logits=False,
        fast_logits=False,
        draft_acceptance_threshold=None,
        max_engine_rows=1,
        max_engine_sequences=changes.get("max_batch_size", 64),
        max_seq_len=None,
        mix_seed=False,
        separate_devices=False,
        rounds=draft is not None and changes.get("max_engine_rows", 1) > 1,
        request_timeout_seconds=300,
        queue_timeout_seconds=None,
        draft_timeout_seconds=DRAFT_TIMEOUT_SECONDS,
        max_running_sequences=BLS_SEQUENCES,
        bls_instance_count=1,
        refused_parameters="{}",
    )
    return replace(values, **changes)


def assemble(folder: Path, models: Iterable[str], values: BlsVariables) -> Path:
    """Write `<folder>/<model>/config.pbtxt` and link `<folder>/<model>/1` for each model; the folder.

    An ensemble has an empty `1`.
    """
    for model in models:
        destination = folder / model
        destination.mkdir(parents=True)
        (destination / "config.pbtxt").write_text(config(model, values))
        if model in CODELESS:
            (destination / "1").mkdir()
        elif model in LIBRARIES:
            library = LIBRARIES[model]()
            (destination / "1").mkdir()
            (destination / "1" / library.name).symlink_to(library)
        else:
            (destination / "1").symlink_to(SOURCES.get(model, SERVING / model) / "1")
    return folder


def _model(path: Path) -> ModelVariables:
    return ModelVariables(model_path=str(path), tokenizer_path=str(path), engine=None, parameters={})
