"""Triton's model configurations, from jinja2 templates in `repository/<model>/config.pbtxt.j2`."""

from functools import cache

import jinja2

from tandem.render.inputs import Inputs
from tandem.sources import Role

ENGINES = ("tensorrt_llm", "tensorrt_llm_draft")
CODELESS = ("ensemble",)  # Triton runs it by its configuration alone
MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "speculative_bls", "tensorrt_llm_bls")


def model_names(inputs: Inputs) -> list[str]:
    """Names of the Triton models of the repository."""
    return [*MODELS, "tensorrt_llm_draft"] if inputs.spec.draft else [*MODELS]


def model_configs(inputs: Inputs) -> dict[str, str]:
    """`<model>.config.pbtxt` to its text, for each model."""
    spec = inputs.spec
    target = _role(inputs.folders[Role.TARGET])
    draft = _role(inputs.folders[Role.DRAFT]) if spec.draft else None
    variables = {
        "max_batch_size": spec.serving.max_batch_size,
        "max_draft_len": spec.speculation.max_draft_len if spec.draft else 0,
        "min_draft_len": spec.speculation.adaptive.min_draft_len,
        "adaptive": spec.speculation.adaptive.enabled,
        "max_engine_rows": spec.serving.max_batch_size if inputs.profile.batched_engine_calls else 1,
        "separate_devices": False,  # one GPU, or the same CPUs, for both engines
        # Upstream's clients that run the loop themselves make unary calls to the engines, which Triton refuses
        # for decoupled models; speculative_bls may make decoupled calls to either kind.
        "decoupled": False,
        "target": target,
        "draft": draft,
        "request_timeout_seconds": spec.serving.request_timeout_seconds,
        "bls_instance_count": 1,
    }
    return {
        f"{name}.config.pbtxt": _environment().get_template(f"{name}/config.pbtxt.j2").render(variables)
        for name in model_names(inputs)
    }


def _role(folder: str) -> dict[str, str]:
    return {"model_path": folder, "tokenizer_path": folder}


@cache
def _environment() -> jinja2.Environment:
    """Templates of this package; a variable that is not given is an error, never an empty string."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tandem.render.v1", "repository"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # no markup
    )
