"""Tandem's own engine on GPUs: fields that mean nothing to it are refused, with what to write instead."""

from collections.abc import Iterator

from tandem.api.conditions import SpecReason
from tandem.api.types import Draft, EngineBuild, KvCache, Mode, ServiceSpec, Target
from tandem.engines.engine import Engine
from tandem.engines.rule import Refusal, Rule

LENGTH = {Mode.BLS: "target.engine.build.maxSeqLen", Mode.LLMAPI: "runtime.extraLlmArgs.max_seq_len"}
"""Where the length of texts is written."""
_ONLY = frozenset({"max_seq_len"})
"""Fields of `target.engine.build` that the engine has."""


def _fields(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if not engine.profile.gpus:
        return None
    models: dict[str, Target | Draft] = {"target": spec.target, **({"draft": spec.draft} if spec.draft else {})}
    found = [
        f"{field} is not for the engine of profile {engine.profile.name!r}: {advice}"
        for role, model in models.items()
        for field, advice in _problems(spec, role, model)
    ]
    return Refusal(SpecReason.FIELD_NOT_IN_PROFILE, "; ".join(found)) if found else None


def _problems(spec: ServiceSpec, role: str, model: Target | Draft) -> Iterator[tuple[str, str]]:
    """Fields, each with what to write instead."""
    if model.dtype != "auto":
        yield f"{role}.dtype {model.dtype}", "a checkpoint runs in its own type: write dtype: auto"
    length = LENGTH[spec.runtime.mode]
    cache = model.kv_cache or KvCache()
    for name in ("max_tokens", "free_gpu_memory_fraction"):
        if getattr(cache, name) is not None:
            room = f"it has room for serving.maxBatchSize sequences of {length} tokens"
            yield f"{role}.kvCache.{_alias(KvCache, name)}", f"{room}: remove it, and write these"
    if not cache.enable_block_reuse:
        yield f"{role}.kvCache.enableBlockReuse false", "it always finds a text's keys and values again: remove it"
    if model.engine and model.engine.prebuilt:
        yield f"{role}.engine.prebuilt", "it runs checkpoints: remove it"
    build = model.engine.build if model.engine else None
    written = build.model_dump(exclude_defaults=True) if build else {}
    for name in sorted(written.keys() - (_ONLY if role == "target" else set())):
        yield f"{role}.engine.build.{_alias(EngineBuild, name)}", f"remove it; {length} is for both models"


def _alias(model: type[KvCache] | type[EngineBuild], name: str) -> str:
    return model.model_fields[name].alias or name


def _parameters(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    for role, model in {"target": spec.target, "draft": spec.draft}.items():
        if model and model.engine and model.engine.parameters:
            return Refusal(
                SpecReason.FIELD_NOT_IN_PROFILE,
                f"{role}.engine.parameters are for TensorRT engines, which profile {engine.profile.name!r} does not"
                " run: remove them, or write another profile",
            )
    return None


def _stages(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    stages, profile = spec.target.pipeline_parallel_size, engine.profile
    if not profile.gpus or stages == 1:
        return None
    return Refusal(
        SpecReason.TENSOR_PARALLEL_NOT_IN_PROFILE,
        f"target.pipelineParallelSize is {stages}, and profile {profile.name!r} has no pipeline stages: write 1, or"
        " another profile",
    )


RULES: tuple[Rule, ...] = (_stages, _fields, _parameters)
