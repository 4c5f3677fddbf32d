"""A checkpoint of transformers as a `TorchModel`, or the reason why it cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from reference_engine import kv_cache
from reference_engine.config import CheckpointError
from reference_engine.scheduler import Capacity, Scheduler
from reference_engine.torch_backend import attention, chain, checkpoints, linear, splitting
from reference_engine.torch_backend.attention import SlotCache
from reference_engine.torch_backend.model import TorchModel
from reference_engine.torch_backend.ranks import Alone, Job, Leader, join
from reference_engine.torch_backend.splitting import Gathered, Part

_WARM_DRAFT_LEN = 7  # graphs of longer drafts are captured when the first comes


@dataclass(frozen=True)
class Sizes:
    """`slots` sequences at a time of at most `max_seq_len` tokens, `max_num_tokens` rows a pass."""

    slots: int
    max_seq_len: int
    max_num_tokens: int


@dataclass(frozen=True)
class Share:
    """A rank's share of a model on its device, and how it is run."""

    module: nn.Module
    sizes: Sizes


def load(folder: Path, wanted: Sizes, kv_cache_bytes: int, gpus: Sequence[int] = (0,)) -> Scheduler:
    """A checkpoint's scheduler, on GPUs where there are any: the model is split over several. Raises CheckpointError.

    `wanted.max_seq_len` 0: the model's own limit. The KV cache has as many slots as fit into its bytes, of all GPUs
    together; 0: all.
    """
    checkpoints.check(folder, len(gpus))
    sizes = (wanted.slots, wanted.max_seq_len, wanted.max_num_tokens)
    job = Job(str(folder), *sizes, kv_cache_bytes, tuple(gpus))
    if len(gpus) == 1:
        return _scheduler(load_share(job, 0), Alone())
    leader = Leader(job)  # the others load at the same time
    try:
        share = load_share(leader.job, 0)
        leader.wait()
        join(leader.job, 0)
        return _scheduler(share, leader)
    except BaseException:
        leader.close()
        raise


def load_share(job: Job, rank: int) -> Share:
    """A rank's weights on its GPU. Raises CheckpointError."""
    values = config(Path(job.folder))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        if job.gpus[rank] >= torch.cuda.device_count():
            raise CheckpointError(f"there is no GPU {job.gpus[rank]}: {torch.cuda.device_count()} are here")
        torch.cuda.set_device(job.gpus[rank])
    dtype = (values.dtype or torch.float16) if device == "cuda" else torch.float32
    longest = min(job.max_seq_len or values.max_position_embeddings, values.max_position_embeddings)
    slot = bytes_per_slot(values, longest, dtype)
    slots = kv_cache.slots(job.kv_cache_bytes or job.slots * slot, slot, longest, job.slots)
    sizes = Sizes(slots, longest, job.max_num_tokens)
    ranks = len(job.gpus)
    if device == "cuda":
        needed = checkpoints.memory(Path(job.folder), slots, longest, ranks, job.max_num_tokens)
        needed.check(torch.cuda.mem_get_info()[0])
    return Share(read(Path(job.folder), dtype, device, rank, ranks), sizes)


def build_share(share: Share, ranks: Alone) -> TorchModel:
    """A rank's model; its layers are compiled where it is on a GPU."""
    return build(share.module, share.sizes, compiled=torch.cuda.is_available(), ranks=ranks)


def _scheduler(share: Share, ranks: Alone) -> Scheduler:
    sizes, model = share.sizes, build_share(share, ranks)
    model.warm(min(sizes.slots, sizes.max_num_tokens), _WARM_DRAFT_LEN)
    capacity = Capacity(sizes.max_num_tokens, sizes.slots, sizes.max_seq_len)
    return Scheduler(model, capacity, share.module.config.vocab_size)


def config(folder: Path) -> PreTrainedConfig:
    """Read and check config.json. Raises CheckpointError."""
    checkpoints.check(folder)
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the checkpoint in {folder}: {error}") from error


def head_dim(values: PreTrainedConfig) -> int:
    """Width of a head."""
    return getattr(values, "head_dim", None) or values.hidden_size // values.num_attention_heads


def bytes_per_slot(values: PreTrainedConfig, max_seq_len: int, dtype: torch.dtype) -> int:
    """Memory of one slot, in bytes."""
    width = values.num_key_value_heads * head_dim(values)
    return 2 * values.num_hidden_layers * max_seq_len * width * dtype.itemsize


def read(folder: Path, dtype: torch.dtype, device: str, rank: int = 0, ranks: int = 1) -> nn.Module:
    """The checkpoint's weights in a module of transformers, or a rank's share of them. Raises CheckpointError.

    The files are mapped, so ranks that read them at the same time share the memory.
    """
    values = config(folder)
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            folder, config=values, dtype=dtype, attn_implementation=attention.NAME, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the checkpoint in {folder}: {error}") from error
    _refuse(report)
    if ranks > 1:
        splitting.cut(module, Part(rank, ranks, device))
    return module.to(device)


def _refuse(report: Mapping[str, Any]) -> None:
    if report["missing_keys"] or report.get("mismatched_keys"):
        names = sorted([*report["missing_keys"], *(str(each) for each in report.get("mismatched_keys") or [])])
        raise CheckpointError(f"the checkpoint lacks {', '.join(names[:3])} ({len(names)} tensors): is it complete?")


def build(module: nn.Module, sizes: Sizes, compiled: bool = True, ranks: Alone | None = None) -> TorchModel:
    """Give a module, or a rank's share of one, its caches, fewer and larger products, and compiled layers."""
    module.eval()
    ranks = ranks or Alone()
    values, weight = module.config, next(module.parameters())
    shape = (sizes.slots + 1, values.num_key_value_heads // ranks.size, sizes.max_seq_len, head_dim(values))
    layers = attention_modules(module)
    if len(layers) != values.num_hidden_layers:
        raise CheckpointError(f"{len(layers)} attention layers of {values.num_hidden_layers} are of a known kind")
    # One tensor for all layers: a slot is copied by one kernel.
    keys = torch.zeros((len(layers), *shape), dtype=weight.dtype, device=weight.device)
    cache = SlotCache(keys, torch.zeros_like(keys))
    for index, each in enumerate(layers):
        each.slot_cache = SlotCache(cache.keys[index], cache.values[index])
    head = module.get_output_embeddings()
    linear.replace(module, head.inner if isinstance(head, Gathered) else head)
    if compiled:
        compile_layers(module)
    return TorchModel(module, cache, sizes.max_num_tokens, ranks)


def attention_modules(module: nn.Module) -> list[nn.Module]:
    """The modules that call the attention function, in the order of the layers."""
    found = [each for each in module.modules() if hasattr(each, "layer_idx") and hasattr(each, "scaling")]
    return sorted(found, key=lambda each: each.layer_idx)


def compile_layers(module: nn.Module) -> None:
    """Fuse what stands between the products. One layer is compiled; the others are its like and use its code."""
    chain.compiler()
    base = module.base_model
    for each in [*base.layers, base.norm, base.rotary_emb]:
        each.compile(dynamic=True)
