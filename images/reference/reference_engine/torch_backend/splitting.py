"""Tensor parallelism: each rank, a GPU of its own, has a share of every layer's heads and MLP, and of the head.

As Megatron-LM (Shoeybi et al. 2019): a layer split by its outputs (columns) needs nothing of the other ranks, the
one after it is split by its inputs (rows), and its outputs are summed over the ranks: two sums a decoder layer.
Which layer is split how, transformers says (`base_model_tp_plan`). Embeddings and norms are on every rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reference_engine.config import CheckpointError

_COLUMNS, _ROWS = "colwise", "rowwise"


@torch.library.custom_op("tandem::sum_over_ranks", mutates_args=("x",))
def sum_over_ranks(x: Tensor) -> None:
    """Replace x by its sum over the ranks. Opaque to the compiler, as `linear`."""
    dist.all_reduce(x)


class Summed(nn.Module):
    """A linear layer that is split by its inputs."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """See nn.Linear."""
        out = self.inner(x)
        sum_over_ranks(out)
        return out


class Gathered(nn.Module):
    """The head, split by its outputs: every rank gets all `width` logits."""

    def __init__(self, inner: nn.Linear, width: int) -> None:
        super().__init__()
        self.inner = inner
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """[1, rows, hidden] to [1, rows, width]."""
        part = self.inner(x)[0].contiguous()
        ranks = dist.get_world_size()
        parts = part.new_empty((ranks * len(part), part.shape[1]))
        dist.all_gather_into_tensor(parts, part)
        return parts.view(ranks, *part.shape).transpose(0, 1).reshape(1, len(part), -1)[..., : self.width]


@dataclass(frozen=True)
class Part:
    """A rank's: its share of weights goes to `device`."""

    rank: int
    ranks: int
    device: str

    def of(self, values: Tensor, dim: int) -> nn.Parameter:
        """One of equal parts along a dimension, the last filled up with zeros. A copy: a view would keep all."""
        size = -(-values.shape[dim] // self.ranks)
        start = min(self.rank * size, values.shape[dim])
        kept = values.detach().narrow(dim, start, min(size, values.shape[dim] - start))
        part = kept.new_zeros((*kept.shape[:dim], size, *kept.shape[dim + 1 :]), device=self.device)
        part.narrow(dim, 0, kept.shape[dim]).copy_(kept)
        return nn.Parameter(part, requires_grad=False)


def cut(module: nn.Module, part: Part) -> None:
    """Keep a rank's share of a causal decoder's weights. No other rank is asked.

    Raises CheckpointError where transformers has no such plan for it.
    """
    base = module.base_model
    plan = module.config.base_model_tp_plan or {}
    for name, layer in list(base.named_modules()):
        if type(layer) is nn.Linear:
            _cut_layer(base, name, _style(plan, name), part)
    head = module.get_output_embeddings()
    width = head.out_features
    _by_outputs(head, part)
    module.set_output_embeddings(Gathered(head, width))


def _style(plan: Mapping[str, str], name: str) -> str:
    """How a layer is split."""
    style = next((style for pattern, style in plan.items() if fnmatchcase(name, pattern)), "")
    if style not in (_COLUMNS, _ROWS):
        raise CheckpointError(f"{name} cannot be split over GPUs (its plan is {style!r}): run the model on one")
    return style


def _cut_layer(base: nn.Module, name: str, style: str, part: Part) -> None:
    layer = base.get_submodule(name)
    if style == _COLUMNS:
        _by_outputs(layer, part)
        return
    layer.weight = part.of(layer.weight, 1)
    layer.in_features = layer.weight.shape[1]
    if part.rank:  # what is summed has its bias once
        layer.bias = None
    parent, _, last = name.rpartition(".")
    setattr(base.get_submodule(parent), last, Summed(layer))


def _by_outputs(layer: nn.Linear, part: Part) -> None:
    layer.weight = part.of(layer.weight, 0)
    layer.out_features = layer.weight.shape[0]
    if layer.bias is not None:
        layer.bias = part.of(layer.bias, 0)
