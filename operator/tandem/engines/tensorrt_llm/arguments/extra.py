"""`runtime.extraLlmArgs`: arguments that are passed on as they are, beside those that the resource decides."""

from collections.abc import Iterator, Mapping
from typing import Any

from tandem.api.decoding import DecodingType
from tandem.engines.tensorrt_llm.arguments.base import SpeculativeConfig
from tandem.engines.tensorrt_llm.arguments.dialects import SCHEMAS

_SPECULATION = "speculative_config"
_MAPPING = "must be a mapping: write the fields that you add below it"
NOT_CUSTOM = {
    "decoding_type": "speculation.decodingType",
    "max_draft_len": "speculation.maxDraftLen",
    "num_nextn_predict_layers": "speculation.maxDraftLen",
    "speculative_model": "draft.model.uri",
    "speculative_model_dir": "draft.model.uri",
    "max_concurrency": "speculation.maxConcurrency",
    "draft_len_schedule": "speculation.draftLenSchedule",
}
"""Fields of `speculative_config` that the resource has for every type: `custom.args` must not hold them."""
# Arguments by their path, and the field of the resource that decides them, whether it is written or not.
_FIELDS = {
    "model": "target.model.uri",
    "revision": "target.model.revision",
    "backend": "runtime.profile",
    "tensor_parallel_size": "target.tensorParallelSize",
    "pipeline_parallel_size": "target.pipelineParallelSize",
    "gpus_per_node": "placement.gpu.perNode",
    "dtype": "target.dtype",
    "max_batch_size": "serving.maxBatchSize",
    "kv_cache_config.max_tokens": "target.kvCache.maxTokens",
    "kv_cache_config.free_gpu_memory_fraction": "target.kvCache.freeGpuMemoryFraction",
    "kv_cache_config.enable_block_reuse": "target.kvCache.enableBlockReuse",
    **{f"{_SPECULATION}.{name}": field for name, field in NOT_CUSTOM.items()},
}
# The model of each `decoding_type` that the renderer writes, by its name there; of the newest dialect.
_OF_TYPES = {
    config.model_fields["decoding_type"].default: config
    for schema in SCHEMAS.values()
    for kind, config in schema.configs.items()
    if kind is not DecodingType.CUSTOM
}


def merge(decided: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Both, nested mappings merged. Where both have a value (see `conflict`) the resource's stands."""
    merged = dict(extra)
    for key, value in decided.items():
        other = merged.pop(key, None)  # what the resource decides comes first in the file
        merged[key] = merge(value, other) if isinstance(value, dict) and isinstance(other, dict) else value
    return {key: merged[key] for key in (*decided, *(key for key in extra if key not in decided))}


def conflict(decided: Mapping[str, Any], extra: Mapping[str, Any]) -> str | None:
    """All arguments in `extra` that the resource decides, as a message naming the field to use for each; else None.

    A file of trtllm-serve, pasted as it is, has many of them.
    """
    found = list(_conflicts(decided, extra, "", _fields(decided)))
    fields = {path: field for path, field in found if field}
    parts = [f"runtime.extraLlmArgs.{path} {_MAPPING}" for path, field in found if not field]
    if len(fields) == 1:
        ((path, field),) = fields.items()
        parts.append(f"runtime.extraLlmArgs.{path} is decided by {field}: remove it, and write {field} instead")
    elif fields:
        each = ", ".join(f"{path} ({field})" for path, field in fields.items())
        parts.append(f"runtime.extraLlmArgs has what fields decide: remove it, and write the fields instead: {each}")
    return "; ".join(parts) or None


def _fields(decided: Mapping[str, Any]) -> dict[str, str]:
    """`_FIELDS` and those of the decoding types, its own first; one that only the image knows may have any name."""
    kind = (decided.get(_SPECULATION) or {}).get("decoding_type", "")
    if kind and kind not in _OF_TYPES:
        return _FIELDS
    own = _OF_TYPES.get(kind, SpeculativeConfig)
    names = {name: field for config in (*_OF_TYPES.values(), own) for name, field in config.decided_by.items()}
    return {**{f"{_SPECULATION}.{name}": names[name] for name in names.keys() - own.passed_on}, **_FIELDS}


def _conflicts(
    decided: Mapping[str, Any], extra: Mapping[str, Any], prefix: str, fields: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Paths of arguments with the field that decides each; "" for one that must be a mapping."""
    for key, value in extra.items():
        path = f"{prefix}{key}"
        mine = decided.get(key)
        if path == _SPECULATION and mine is None:
            yield path, "speculation.decodingType"
        elif path in fields or (key in decided and not isinstance(mine, dict)):
            yield path, fields.get(path, _origin(path))
        elif isinstance(value, dict):
            yield from _conflicts(mine or {}, value, f"{path}.", fields)
        elif isinstance(mine, dict) or any(owned.startswith(f"{path}.") for owned in fields):
            yield path, ""


def _origin(path: str) -> str:
    """The field behind an argument that only some resources decide."""
    if path == "tokenizer":
        return "target.model.tokenizer"
    return "speculation.custom.args" if path.startswith(f"{_SPECULATION}.") else "speculation.decodingType"
