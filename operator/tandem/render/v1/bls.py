"""Mode BLS: two engines and Tandem's speculative BLS over them, from templates in `repository/<model>/`."""

from collections.abc import Mapping
from typing import Any

from tandem.api.folders import tokenizer_folder
from tandem.api.roles import ENGINES, Role, references
from tandem.api.types import KvCache
from tandem.engines.gpus import GpuPlan, fast_logits
from tandem.engines.tensorrt_engines.builds import (
    SPECULATIVE_DECODING_MODES,
    decoding_parameters,
    engine_folders,
    max_draft_len,
)
from tandem.render.v1.bls_variables import (
    EngineVariables,
    engine_sequences,
    in_rounds,
    max_seq_len,
    variables,
)
from tandem.render.v1.inputs import Inputs
from tandem.render.v1.stack import Stack, config, engine_check, model_check
from tandem.render.v1.volumes import TANDEM

CLIENT_MODELS = {Role.TARGET: "tensorrt_llm", Role.DRAFT: "tensorrt_llm_draft"}
"""What clients that run the loop themselves call."""
CODELESS = ("ensemble",)  # Triton runs it by its configuration alone
MODELS = ("preprocessing", "postprocessing", "ensemble", "speculative_bls", "tensorrt_llm_bls")


def bls(inputs: Inputs) -> Stack:
    """The models of mode BLS for a spec that was accepted."""
    sources = _sources(inputs)
    engines = tensorrt_engines(inputs)
    values = variables(inputs, engines)
    return Stack(
        configs={name: config(name, values) for name in sources},
        sources={name: source for name, source in sources.items() if source},
        checks=_checks(inputs, engines),
        env=inputs.profile.engine.env,
        engines=tuple(engine_model(role) for role in engines),
        kv_cache=_kv_cache(inputs, engines),
    )


def engine_model(role: Role) -> str:
    """The model that is the engine: it is decoupled, and leaves its name to what answers clients once."""
    return f"{CLIENT_MODELS[role]}_engine"


def _sources(inputs: Inputs) -> dict[str, str]:
    """All models, with the folders of those that are Python code; "": Triton or its backend has the code."""
    sources = {name: "" if name in CODELESS else f"{TANDEM}/models/{name}" for name in MODELS}
    engine = inputs.engine.source
    for role in (Role.TARGET, Role.DRAFT) if inputs.spec.draft else (Role.TARGET,):
        name = CLIENT_MODELS[role]
        sources[name] = f"{TANDEM}/models/engine_unary"
        sources[f"{name}_collector"] = f"{TANDEM}/models/engine_collector"
        sources[engine_model(role)] = engine
    sources[f"{engine_model(Role.TARGET)}_streams"] = f"{TANDEM}/models/engine_streams"
    if in_rounds(inputs):
        sources[f"{engine_model(Role.TARGET)}_rounds"] = f"{TANDEM}/models/engine_rounds"
    return sources


def tensorrt_engines(inputs: Inputs) -> dict[Role, EngineVariables]:
    """The TensorRT engines of the service; empty where the profile's engines are Python models."""
    if not inputs.engine.builds_engines:
        return {}
    plan = inputs.plan
    folders = engine_folders(inputs.spec, inputs.image, inputs.folders)
    return {role: _engine(inputs, plan, role, folders[role]) for role in plan.ranks}


def _engine(inputs: Inputs, plan: GpuPlan, role: Role, folder: str) -> EngineVariables:
    spec = inputs.spec
    model = spec.draft if spec.draft and role is Role.DRAFT else spec.target
    cache = model.kv_cache or KvCache()
    parameters = dict(model.engine.parameters if model.engine else {})
    queue_delay = parameters.pop("max_queue_delay_microseconds", "0")
    if parameters.get("guided_decoding_backend"):  # it compiles grammars for the tokens
        parameters.setdefault("tokenizer_dir", tokenizer_folder(role, inputs.folders))
    return EngineVariables(
        path=folder,
        devices=plan.devices[role],
        participants=plan.participants.get(role, ()),
        block_reuse=cache.enable_block_reuse,
        max_tokens=cache.max_tokens,
        free_fraction=cache.free_gpu_memory_fraction,
        fast_logits=fast_logits(spec),
        decoding=decoding_parameters(spec.speculation),
        queue_delay_microseconds=queue_delay,
        parameters=parameters,
    )


def _kv_cache(inputs: Inputs, engines: Mapping[Role, EngineVariables]) -> dict[str, Any]:
    """Engines whose KV cache the pod sizes: all on GPUs that two of them share, unless both sizes are given."""
    shares_gpu = inputs.plan.shares_gpu
    if not shares_gpu or all(engine.max_tokens for engine in engines.values()):
        return {}
    return {
        engine_model(role): {
            "engine": engine.path,
            "devices": list(engine.devices),
            "max_tokens": engine.max_tokens,
        }
        for role, engine in engines.items()
    }


def _checks(inputs: Inputs, engines: Mapping[Role, EngineVariables]) -> dict[str, Any]:
    spec = inputs.spec
    checks: dict[str, Any] = {"target": model_check(inputs, Role.TARGET)}
    if spec.draft:
        checks["draft"] = model_check(inputs, Role.DRAFT)
        checks["max_draft_len"] = spec.speculation.max_draft_len
        if spec.speculation.acceptance.method == "Logits":
            checks["compares_logits"] = True
    if engines:
        checks["engines"] = {role.value: _engine_check(inputs, role, engine) for role, engine in engines.items()}
        checks["tensorrt_llm"] = inputs.engine.version
        return checks
    return {**checks, **engine_check(inputs, engine_sequences(inputs), max_seq_len(inputs))}


def _engine_check(inputs: Inputs, role: Role, engine: EngineVariables) -> dict[str, Any]:
    """What the engine must have been built for."""
    spec = inputs.spec
    model = spec.draft if spec.draft and role is Role.DRAFT else spec.target
    by_logits = spec.speculation.acceptance.method == "Logits"
    brought = ENGINES[role] in references(spec)
    mode = SPECULATIVE_DECODING_MODES.get(spec.speculation.decoding_type) if role is Role.TARGET and brought else None
    return {
        "path": engine.path,
        "tp_size": model.tensor_parallel_size,
        "pp_size": spec.target.pipeline_parallel_size if role is Role.TARGET else 1,
        "max_batch_size": spec.serving.max_batch_size,
        "max_draft_len": max_draft_len(spec) if role is Role.TARGET else 0,
        **({"use_paged_context_fmha": True} if spec.draft and engine.block_reuse else {}),
        **({"whole_texts": True} if spec.draft else {}),
        **({"gather_generation_logits": True} if by_logits and (role is Role.DRAFT or brought) else {}),
        **({"speculative_decoding_mode": mode} if mode else {}),
    }
