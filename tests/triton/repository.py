"""Model repositories for tests, rendered from the operator's own templates."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from tandem.render.v1.bls import CODELESS, FRONTS
from triton import backends
from triton.harness import REPOSITORY_ROOT

TEMPLATES = REPOSITORY_ROOT / "operator/tandem/render/v1/repository"
ENGINES = REPOSITORY_ROOT / "images/reference/models"
SERVING = REPOSITORY_ROOT / "images/serving/models"
CLIENT_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
COLLECTORS = tuple(f"{name}_collector" for name in CLIENT_MODELS)
ROUNDS = ("tensorrt_llm_rounds", "tensorrt_llm_engine_rounds")
SOURCES = dict.fromkeys(CLIENT_MODELS, ENGINES / "tensorrt_llm")
COLLECTED = {
    **dict.fromkeys(CLIENT_MODELS, SERVING / "engine_unary"),
    **dict.fromkeys((f"{name}_engine" for name in CLIENT_MODELS), ENGINES / "tensorrt_llm"),
}
"""Folders of the models of decoupled engines, by name."""


def variables(target: Path, draft: Path | None, **changes: Any) -> dict[str, Any]:
    """What the operator gives the templates, for models in these folders.

    `changes` replaces single variables: max_batch_size, max_draft_len, request_timeout_seconds, ...
    """
    return {
        "max_batch_size": 64,
        "max_draft_len": 8 if draft else 0,
        "decoupled": False,
        "collects": False,
        "rounds": draft is not None and changes.get("max_engine_rows", 1) > 1,
        "target": _role(target),
        "draft": _role(draft) if draft else None,
        "request_timeout_seconds": 300,
        "bls_instance_count": 1,
        **changes,
    }


def assemble(folder: Path, models: Iterable[str], values: Mapping[str, Any]) -> Path:
    """Write `<folder>/<model>/config.pbtxt` and link `<folder>/<model>/1` for each model; the folder.

    An ensemble has an empty `1`.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # protobuf text, no markup
    )
    sources = COLLECTED if values["collects"] else SOURCES
    for model in models:
        destination = folder / model
        destination.mkdir(parents=True)
        config = environment.get_template(f"{model}/config.pbtxt.j2").render(values)
        (destination / "config.pbtxt").write_text(config)
        if model in CODELESS:
            (destination / "1").mkdir()
        elif model in (*COLLECTORS, *ROUNDS, *FRONTS):
            made = (
                backends.collector if model in COLLECTORS else backends.rounds if model in ROUNDS else backends.front
            )
            library = made()
            (destination / "1").mkdir()
            (destination / "1" / library.name).symlink_to(library)
        else:
            (destination / "1").symlink_to(sources.get(model, SERVING / model) / "1")
    return folder


def _role(path: Path) -> dict[str, str]:
    return {"model_path": str(path), "tokenizer_path": str(path)}
