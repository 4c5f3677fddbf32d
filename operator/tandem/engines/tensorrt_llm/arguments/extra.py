"""`runtime.extraLlmArgs`: arguments that are passed on as they are, beside those that the resource decides."""

from collections.abc import Mapping
from typing import Any

from tandem.api.decoding import DecodingType
from tandem.engines import extra_arguments
from tandem.engines.extra_arguments import merge
from tandem.engines.request_parameters import SPECULATION as _SPECULATION
from tandem.engines.tensorrt_llm.arguments.base import SpeculativeConfig
from tandem.engines.tensorrt_llm.arguments.dialects import SCHEMAS

__all__ = ["NOT_CUSTOM", "conflict", "merge"]

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


def conflict(decided: Mapping[str, Any], extra: Mapping[str, Any]) -> str | None:
    """What `extra` has of what the resource decides, as a message; None: nothing."""
    return extra_arguments.conflict(decided, extra, _fields(decided), _origin)


def _fields(decided: Mapping[str, Any]) -> dict[str, str]:
    """`_FIELDS` and those of the decoding types, its own first; one that only the image knows may have any name."""
    kind = (decided.get(_SPECULATION) or {}).get("decoding_type", "")
    if kind and kind not in _OF_TYPES:
        return _FIELDS
    own = _OF_TYPES.get(kind, SpeculativeConfig)
    names = {name: field for config in (*_OF_TYPES.values(), own) for name, field in config.decided_by.items()}
    return {**{f"{_SPECULATION}.{name}": names[name] for name in names.keys() - own.passed_on}, **_FIELDS}


def _origin(path: str) -> str:
    """The field behind an argument that only some resources decide."""
    if path == "tokenizer":
        return "target.model.tokenizer"
    return "speculation.custom.args" if path.startswith(f"{_SPECULATION}.") else "speculation.decodingType"
