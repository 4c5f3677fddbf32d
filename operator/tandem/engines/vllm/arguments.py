"""The arguments of `AsyncEngineArgs` that a resource asks for. Pure.

What is written here is what the resource says; all else is the image's own default. Names by version are in `names`.
"""

from collections.abc import Mapping
from typing import Any

from tandem.api.decoding import DecodingType
from tandem.api.roles import Role
from tandem.api.types import NGram, ServiceSpec
from tandem.engines import extra_arguments
from tandem.engines.extra_arguments import merge, with_defaults
from tandem.engines.request_parameters import SPECULATION

METHODS: Mapping[DecodingType, str] = {
    DecodingType.DRAFT_TARGET: "draft_model",
    DecodingType.NGRAM: "ngram",
    DecodingType.EAGLE3: "eagle3",
    DecodingType.MTP: "mtp",
    DecodingType.MEDUSA: "medusa",
    DecodingType.SUFFIX: "suffix",
    DecodingType.DFLASH: "dflash",
    DecodingType.DSPARK: "dspark",
}
"""`speculative_config.method`; decoding type Custom names its own."""
NOT_CUSTOM: Mapping[str, str] = {
    "method": "speculation.custom.type",
    "num_speculative_tokens": "speculation.maxDraftLen",
    "draft_tensor_parallel_size": "draft.tensorParallelSize",
    "num_speculative_tokens_per_batch_size": "speculation.draftLenSchedule",
}
"""Fields of `speculative_config` that the resource has for every type: `custom.args` must not hold them."""
LORA_DIRS = "lora_dirs"
"""An argument that is not vLLM's: folders whose LoRA adapters requests may name. The image takes it out."""
_REPLICAS = ("", "_rank", "_start_rank", "_size", "_size_local", "_address", "_rpc_port", "_backend")
_NODES = ("nnodes", "node_rank", "master_addr", "master_port")
# Arguments by their path, and the field of the resource that decides them, whether it is written or not.
_FIELDS: Mapping[str, str] = {
    "model": "target.model.uri",
    "tokenizer": "target.model.tokenizer",
    "revision": "target.model.revision",
    "hf_token": "target.model.secretName",
    "tensor_parallel_size": "target.tensorParallelSize",
    "pipeline_parallel_size": "target.pipelineParallelSize",
    "dtype": "target.dtype",
    "max_num_seqs": "serving.maxBatchSize",
    "enable_prefix_caching": "target.kvCache.enableBlockReuse",
    **dict.fromkeys((f"data_parallel{name}" for name in _REPLICAS), "replicas"),
    **dict.fromkeys(_NODES, "placement.gpu.perNode"),
    "spec_method": "speculation.decodingType",
    "spec_model": "draft.model.uri",
    "spec_tokens": "speculation.maxDraftLen",
    **{f"{SPECULATION}.{name}": field for name, field in NOT_CUSTOM.items()},
    f"{SPECULATION}.method": "speculation.decodingType",
    f"{SPECULATION}.model": "draft.model.uri",
}


def decided(spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
    """What the resource itself decides: `llm_args` without `runtime.extraLlmArgs`."""
    target, cache = spec.target, spec.target.kv_cache
    arguments = {
        "model": folders[Role.TARGET],
        "tokenizer": folders.get(Role.TARGET_TOKENIZER),
        "tensor_parallel_size": target.tensor_parallel_size,
        "pipeline_parallel_size": target.pipeline_parallel_size,
        "dtype": None if target.dtype == "auto" else target.dtype,
        "max_num_seqs": spec.serving.max_batch_size,
        "enable_prefix_caching": cache.enable_block_reuse if cache else None,
        SPECULATION: _speculation(spec, folders),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def llm_args(spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any]:
    """All arguments, as plain data. `folders`: folder of each model."""
    arguments = merge(decided(spec, folders), spec.runtime.extra_llm_args)
    if spec.speculation.decoding_type is DecodingType.NGRAM:  # vLLM would look up only the longest
        arguments[SPECULATION] = with_defaults(arguments[SPECULATION], {"prompt_lookup_min": 1})
    return with_defaults(arguments, {"enable_lora": True}) if arguments.get(LORA_DIRS) else arguments


def conflict(spec: ServiceSpec, folders: Mapping[Role, str]) -> str | None:
    """What `runtime.extraLlmArgs` has of what the resource decides, as a message; None: nothing."""
    return extra_arguments.conflict(decided(spec, folders), spec.runtime.extra_llm_args, _FIELDS, _origin)


def _origin(path: str) -> str:
    own = "nGram.maxMatchingNgramSize" if path.endswith(".prompt_lookup_max") else "custom.args"
    return f"speculation.{own}"


def method_of(spec: ServiceSpec) -> str:
    """vLLM's name of what drafts; empty without speculation."""
    custom = spec.speculation.custom
    return custom.type if custom else METHODS.get(spec.speculation.decoding_type, "")


def _speculation(spec: ServiceSpec, folders: Mapping[Role, str]) -> dict[str, Any] | None:
    """`speculative_config`."""
    speculation, custom = spec.speculation, spec.speculation.custom
    if not (method := method_of(spec)):
        return None
    ngram = speculation.decoding_type is DecodingType.NGRAM
    split = spec.draft and spec.target.tensor_parallel_size > 1
    fields = {
        "method": method,
        "model": folders.get(Role.DRAFT) or folders.get(Role.MEDUSA_HEADS),
        "num_speculative_tokens": speculation.max_draft_len,
        "draft_tensor_parallel_size": spec.draft.tensor_parallel_size if spec.draft and split else None,
        "num_speculative_tokens_per_batch_size": _schedule(spec),
        "prompt_lookup_max": (speculation.n_gram or NGram()).max_matching_ngram_size if ngram else None,
    }
    written = {name: value for name, value in fields.items() if value is not None}
    return with_defaults(written, custom.args if custom else {})


def _schedule(spec: ServiceSpec) -> list[list[int]] | None:
    """Ranges of requests at once, first and last, each with its draft length. vLLM keeps the last one above them."""
    speculation = spec.speculation
    if speculation.max_concurrency:
        steps = [(speculation.max_concurrency, speculation.max_draft_len)]
    elif speculation.draft_len_schedule:
        steps = [(step.max_batch_size, step.draft_len) for step in speculation.draft_len_schedule]
    else:
        return None
    if steps[-1][0] < spec.serving.max_batch_size:
        steps.append((spec.serving.max_batch_size, 0))
    starts = (1, *(last + 1 for last, _ in steps))
    return [[first, last, length] for first, (last, length) in zip(starts, steps, strict=False)]
