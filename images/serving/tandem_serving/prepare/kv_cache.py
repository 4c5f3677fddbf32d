"""Sizes of the KV caches of TensorRT engines that share GPUs.

TensorRT-LLM sizes a cache as a share of what is free once its own engine is loaded: right for an engine that has the
GPU to itself, a matter of luck where a second one is still to come. So both get a number of tokens. A sequence of
the speculative BLS is in both engines, as long in one as in the other: all get the same number T, the largest for
which on each GPU

    T * (bytes of a token, of all its engines) <= USABLE * (memory - weights - workspace of each engine)

An engine whose size the user gave keeps it, and what it takes is no longer there for the others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_serving import checkpoint
from tandem_serving.checkpoint import CheckpointError

GIB = 1 << 30
USABLE = 0.9
"""Share of the remaining memory that becomes KV cache: TensorRT-LLM's own default."""
WORKSPACE = 2 * GIB
"""An estimate of what an engine takes besides its weights: activations, CUDA context, NCCL's buffers."""
WORKSPACE_TOKENS = 8192
"""Tokens of a step that are in it, trtllm-build's own `max_num_tokens`: activations grow with these (TensorRT-LLM's
docs/source/reference/memory.md)."""
BLOCK_TOKENS = 64
"""Sizes are multiples of this: no engine has larger blocks."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "INT8": 1, "FP8": 1}


class KvCacheError(Exception):
    """The caches do not fit; the message says the numbers, and what to do."""


@dataclass(frozen=True)
class EngineMemory:
    """What an engine takes of each of its GPUs, in bytes, and the longest sequence that it must hold, in tokens:
    a draft's are in its cache too."""

    weights: int
    token: int
    max_seq_len: int
    workspace: int = WORKSPACE


@dataclass(frozen=True)
class Share:
    """An engine, the indices of its GPUs, and the tokens that the user gave it."""

    engine: EngineMemory
    devices: tuple[int, ...]
    max_tokens: int | None = None


def read_engine(folder: Path) -> EngineMemory:
    """Sizes from an engine's config.json and files. Raises CheckpointError."""
    config = checkpoint.read_json(folder / "config.json")
    limits = checkpoint.read_limits(folder)
    build = config.get("build_config") or {}
    try:
        token = _token_bytes(config["pretrained_config"])
        more = max(0, (build.get("max_num_tokens") or 0) - WORKSPACE_TOKENS)
        workspace = WORKSPACE + (more and more * _activation_bytes(config["pretrained_config"]))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise CheckpointError(f"{folder}/config.json says no shapes ({error!r}): build the engine again") from None
    ranks = [path.stat().st_size for path in folder.glob("rank*.engine")]
    if not ranks:
        raise CheckpointError(f"{folder} has no rank*.engine: build the engine again")
    longest = limits.max_sequence_len + (build.get("max_draft_len") or 0)
    return EngineMemory(weights=max(ranks), token=token, max_seq_len=longest, workspace=workspace)


def _token_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of one token's keys and values on each GPU. A KV head that GPUs share is there on each."""
    mapping = config.get("mapping") or {}
    tensor, pipeline = mapping.get("tp_size", 1), mapping.get("pp_size", 1)
    layers = -(-config["num_hidden_layers"] // pipeline)
    heads = -(-(config.get("num_key_value_heads") or config["num_attention_heads"]) // tensor)
    size = config.get("head_size") or config["hidden_size"] // config["num_attention_heads"]
    quantized = (config.get("quantization") or {}).get("kv_cache_quant_algo")
    return int(2 * layers * heads * size * _BYTES[quantized or config["dtype"]])


def _activation_bytes(config: Mapping[str, Any]) -> int:
    """Bytes that one token of a step takes on each GPU, about: what one layer holds, since the next one reuses it
    (memory.md). Two bytes for each of 8 hidden sizes (residuals, norms, queries, keys, values) and 3 intermediate
    ones, which are split."""
    hidden = config["hidden_size"]
    intermediate = config.get("intermediate_size") or 4 * hidden
    tensor = (config.get("mapping") or {}).get("tp_size", 1)
    return int(2 * (8 * hidden + 3 * -(-intermediate // tensor)))


def budgets(shares: Mapping[str, Share], memory: Sequence[int]) -> dict[str, int]:
    """Tokens of each engine whose size the user did not give, by name. `memory`: bytes of each GPU.

    Raises:
        KvCacheError: there is no room for the longest sequence.
    """
    tokens = min(_tokens(device, shares, memory) for share in shares.values() for device in share.devices)
    tokens -= tokens % BLOCK_TOKENS
    longest = max(share.engine.max_seq_len for share in shares.values())
    if tokens < longest:
        raise KvCacheError(
            f"{max(tokens, 0)} tokens fit into the KV caches of {' and '.join(shares)}, and the longest sequence has"
            f" {longest}: {'; '.join(_describe(name, share) for name, share in shares.items())}; GPU memory"
            f" {', '.join(f'{size / GIB:.1f}' for size in memory)} GiB: build engines of a smaller maxSeqLen, split"
            " the target over more GPUs, or write placement.strategy: Separate"
        )
    return {name: tokens for name, share in shares.items() if share.max_tokens is None}


def _tokens(device: int, shares: Mapping[str, Share], memory: Sequence[int]) -> int:
    """Tokens that fit on one GPU; `device` is its index."""
    if device >= len(memory):
        raise KvCacheError(
            f"the engines are placed on GPU {device}, and the pod has {len(memory)}: check its resources"
        )
    here = [share for share in shares.values() if device in share.devices]
    free = memory[device] - sum(share.engine.weights + share.engine.workspace for share in here)
    given = sum((share.max_tokens or 0) * share.engine.token for share in here)
    wanted = sum(share.engine.token for share in here if share.max_tokens is None)
    return int((USABLE * free - given) // wanted) if wanted else 1 << 31


def _describe(name: str, share: Share) -> str:
    engine = share.engine
    return f"{name} has {engine.weights / GIB:.1f} GiB of weights and {engine.token} bytes a token on each GPU"


def gpu_memory() -> list[int]:
    """Bytes of each GPU (or MIG slice) that this process sees. Raises KvCacheError.

    By the driver's API (cuDeviceTotalMem), which needs no context and so takes no memory itself.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise KvCacheError(f"the NVIDIA driver is not in this container ({error}): check runtimeClassName") from None
    count, device, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)))
    memory = []
    for ordinal in range(count.value):
        _check(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
        _check(cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device))
        memory.append(size.value)
    return memory


def _check(status: int) -> None:
    if status:
        raise KvCacheError(f"the NVIDIA driver answers with error {status}: check the node's GPUs")
