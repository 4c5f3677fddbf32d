"""Mode BLS: two engines and Tandem's speculative BLS over them, from templates in `repository/<model>/`."""

from typing import Any

from tandem.render.inputs import Inputs
from tandem.render.v1.stack import Stack, config
from tandem.sources import Role
from tandem.volumes import TANDEM

ENGINES = ("tensorrt_llm", "tensorrt_llm_draft")
CODELESS = ("ensemble",)  # Triton runs it by its configuration alone
MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "speculative_bls", "tensorrt_llm_bls")


def bls(inputs: Inputs) -> Stack:
    """The models of mode BLS for a spec that was accepted."""
    names = [*MODELS, "tensorrt_llm_draft"] if inputs.spec.draft else [*MODELS]
    variables = _variables(inputs)
    return Stack(
        configs={name: config("repository", name, variables) for name in names},
        sources={name: _source(inputs, name) for name in names if name not in CODELESS},
        checks=_checks(inputs),
        env=inputs.profile.engine_env,
    )


def _source(inputs: Inputs, name: str) -> str:
    return inputs.profile.engine_source if name in ENGINES else f"{TANDEM}/models/{name}"


def _variables(inputs: Inputs) -> dict[str, Any]:
    spec = inputs.spec
    return {
        "max_batch_size": spec.serving.max_batch_size,
        "max_draft_len": spec.speculation.max_draft_len if spec.draft else 0,
        "min_draft_len": spec.speculation.adaptive.min_draft_len,
        "adaptive": spec.speculation.adaptive.enabled,
        "max_engine_rows": spec.serving.max_batch_size if inputs.profile.batched_engine_calls else 1,
        "separate_devices": False,  # one GPU, or the same CPUs, for both engines
        # Upstream's clients that run the loop themselves make unary calls to the engines, which Triton refuses
        # for decoupled models; speculative_bls may make decoupled calls to either kind.
        "decoupled": False,
        "target": _role(inputs.folders[Role.TARGET]),
        "draft": _role(inputs.folders[Role.DRAFT]) if spec.draft else None,
        "request_timeout_seconds": spec.serving.request_timeout_seconds,
        "bls_instance_count": 1,
    }


def _role(folder: str) -> dict[str, str]:
    return {"model_path": folder, "tokenizer_path": folder}


def _checks(inputs: Inputs) -> dict[str, Any]:
    spec = inputs.spec
    checks: dict[str, Any] = {"target": {"path": inputs.folders[Role.TARGET]}}
    if spec.draft:
        checks["draft"] = {"path": inputs.folders[Role.DRAFT]}
        checks["max_draft_len"] = spec.speculation.max_draft_len
    return checks
