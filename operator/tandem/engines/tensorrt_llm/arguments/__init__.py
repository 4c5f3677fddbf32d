"""The arguments of `tensorrt_llm.LLM` that a resource asks for, in the dialect of the profile's image. Pure.

A dialect is the text of TensorRT-LLM's `llmapi/llm_args.py` over a range of releases: names and meanings drift.
Each has its module, with a typed model of every decoding type (`v1_2`, `v1_3`, `v1_4`; those that all spell alike are
in `base`); `extra` merges what the user passes on. What is written here is what the resource says; all else is the
image's own default.
"""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from tandem.api.roles import Role
from tandem.api.types import ServiceSpec
from tandem.engines.tensorrt_llm.arguments.base import KvCacheConfig, LlmArgs
from tandem.engines.tensorrt_llm.arguments.dialects import SCHEMAS
from tandem.engines.tensorrt_llm.arguments.extra import NOT_CUSTOM, conflict, merge
from tandem.engines.tensorrt_llm.dialect import Dialect

__all__ = ["NOT_CUSTOM", "SCHEMAS", "conflict", "decided", "llm_args", "not_in_dialect", "to_yaml"]


def decided(spec: ServiceSpec, dialect: Dialect, folders: Mapping[Role, str]) -> dict[str, Any]:
    """What the resource itself decides: `llm_args` without `runtime.extraLlmArgs`.

    Raises:
        KeyError: a decoding type of mode BLS.
        pydantic.ValidationError: the dialect has no such value.
    """
    speculation, target, cache = spec.speculation, spec.target, spec.target.kv_cache
    fields = {
        "model": folders[Role.TARGET],
        "tokenizer": folders.get(Role.TARGET_TOKENIZER),
        "tensor_parallel_size": target.tensor_parallel_size,
        "pipeline_parallel_size": target.pipeline_parallel_size,
        "dtype": None if target.dtype == "auto" else target.dtype,
        "max_batch_size": spec.serving.max_batch_size,
        "kv_cache_config": {name: getattr(cache, name) for name in KvCacheConfig.model_fields} if cache else None,
        "disable_overlap_scheduler": True if speculation.decoding_type.traits.drafts_on_host else None,
        "speculative_config": SCHEMAS[dialect].speculative_config(speculation, folders.get(Role.DRAFT)),
    }
    return LlmArgs.model_validate(fields).model_dump(exclude_none=True)


def llm_args(spec: ServiceSpec, dialect: Dialect, folders: Mapping[Role, str]) -> dict[str, Any]:
    """All arguments, as plain data. A drafter of the user's (UserProvided) is no data: the server adds it.

    `folders`: folder of each model, or its name in the Hugging Face hub.
    """
    return merge(decided(spec, dialect, folders), spec.runtime.extra_llm_args)


def not_in_dialect(spec: ServiceSpec, dialect: Dialect) -> str | None:
    """The field of the resource whose value the dialect does not have; None where it has all.

    Raises:
        KeyError: a decoding type that it does not have.
    """
    kind, draft = spec.speculation.decoding_type, "draft" if spec.draft else None
    try:
        SCHEMAS[dialect].speculative_config(spec.speculation, draft)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        configs = [schema.configs[kind] for schema in SCHEMAS.values() if kind in schema.configs]
        return next((config.decided_by[name] for config in configs if name in config.decided_by), name)
    return None


def to_yaml(args: Mapping[str, Any]) -> str:
    """The arguments as `trtllm-serve --config` and upstream's Triton model read them."""
    return yaml.safe_dump(dict(args), sort_keys=False, width=110, allow_unicode=True)
