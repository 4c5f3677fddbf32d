"""Mode LLMAPI: an engine that drafts by itself as one Triton model, from templates in `llmapi/<model>/`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tandem.api.roles import Role, drafts_by_heads
from tandem.digest import digest
from tandem.engines.tensorrt_llm.arguments import to_yaml
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.stack import Stack, Variables, config, engine_check, model_check, to_json, with_spare
from tandem.render.v1.volumes import DRAFTER, REVISION, TANDEM

LLM_ARGS = "llm_args.yaml"
MAX_WAITING_SEQUENCES = 1024
STREAMS, UNARY = "tensorrt_llm_llmapi", "tensorrt_llm_unary"
"""Tandem's models, by their folders: the engine, decoupled; and one response for clients without streams."""
NAMES = {STREAMS: "tensorrt_llm_stream", UNARY: "tensorrt_llm"}
"""Their names in Triton: upstream's model is not decoupled by default (llmapi/tensorrt_llm/1/model.yaml)."""


@dataclass(frozen=True)
class LlmApiVariables(Variables):
    """The variables of the templates of both models."""

    folder: ClassVar[str] = "llmapi"
    streams: str
    """Name of the decoupled model."""
    unary: str
    """Name of the other."""
    llm_args_path: str
    """llm_args.yaml in the pod."""
    engine: str
    """Its kind."""
    max_batch_size: int
    """Of the engine: so many requests at once."""
    max_waiting_sequences: int
    """Beyond those."""
    request_timeout_seconds: float
    drafter: str
    """module:attribute; empty without a drafter of the user's."""
    resource_manager: str
    """Likewise, of the resource manager that goes with it."""
    drafter_path: str
    """Its folder in the pod; empty: it is in the image."""
    refused_parameters: str
    """Parameters of requests that would have no effect, and why: a JSON object."""


def llmapi(inputs: Inputs) -> Stack:
    """The models of mode LLMAPI for a spec that was accepted."""
    arguments = inputs.engine.arguments(inputs.spec, inputs.folders)
    variables = _variables(inputs)
    return Stack(
        configs={name: config(folder, variables) for folder, name in NAMES.items()},
        sources={name: f"{TANDEM}/models/{folder}" for folder, name in NAMES.items()},
        checks=_checks(inputs, arguments),
        files={LLM_ARGS: to_yaml(arguments)},
        env=inputs.profile.engine.env,
    )


def _variables(inputs: Inputs) -> LlmApiVariables:
    spec, drafter = inputs.spec, inputs.spec.speculation.user_provided
    return LlmApiVariables(
        streams=NAMES[STREAMS],
        unary=NAMES[UNARY],
        llm_args_path=f"{REVISION}/{LLM_ARGS}",
        engine=inputs.engine.kind,
        max_batch_size=spec.serving.max_batch_size,
        max_waiting_sequences=MAX_WAITING_SEQUENCES,
        request_timeout_seconds=spec.serving.request_timeout_seconds,
        drafter=drafter.entry_point if drafter else "",
        resource_manager=(drafter.resource_manager if drafter else None) or "",
        drafter_path=DRAFTER if drafter and drafter.config_map_name else "",
        refused_parameters=to_json(inputs.engine.refused_parameters(spec, inputs.folders)),
    )


def _checks(inputs: Inputs, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`draft` shares the target's tokenizer; `heads` are weights of which only the engine knows more. The arguments
    count by their digest: others are tried again."""
    spec, kept = inputs.spec, inputs.spec.serving.max_batch_size
    if "speculative_config" in arguments:
        kept = with_spare(kept)
    checks: dict[str, Any] = {
        "target": model_check(inputs, Role.TARGET),
        "llm_args": {"file": LLM_ARGS, "engine": inputs.engine.kind, "digest": digest(to_yaml(arguments))},
        **engine_check(inputs, kept, arguments.get("max_seq_len")),
    }
    if drafts_by_heads(spec):
        checks["heads"] = {"path": inputs.folders[Role.DRAFT]}
    elif spec.draft:
        checks["draft"] = model_check(inputs, Role.DRAFT)
        checks["max_draft_len"] = spec.speculation.max_draft_len
    return checks
