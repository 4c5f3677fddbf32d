"""Linear layers for few rows, where the weights' way from memory is all the time.

BLAS picks kernels made for many rows; for up to `FEW` rows a kernel of ours streams the weights through the matrix
units once. `replace` turns a model's linear layers into `FewRows`; projections of the same input (`JOINED`)
become one product.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from reference_engine.torch_backend import chain, kernels

FEW = 16
JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_COLUMNS, _DEPTH = 16, 512  # the fastest of nine that were tried on an H100, in the shapes of Llama 3 8B


@torch.library.custom_op("tandem::linear", mutates_args=())
def linear(x: Tensor, weight: Tensor, bias: Tensor | None, exact: bool) -> Tensor:
    """x [..., in] by weight [out, in]; `exact`: sums leave in float32."""
    rows = x.reshape(-1, x.shape[-1])
    kind = torch.float32 if exact else x.dtype
    if rows.shape[0] > FEW or not x.is_cuda:
        if not exact or x.dtype == kind:
            return F.linear(x, weight, bias)
        out = torch.mm(rows, weight.t(), out_dtype=kind) if x.is_cuda else F.linear(rows.float(), weight.float())
        out = out if bias is None else out + bias
    else:
        out = x.new_empty((rows.shape[0], weight.shape[0]), dtype=kind)
        _stream(rows, weight, bias, out)
    return out.view(*x.shape[:-1], weight.shape[0])


@linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, exact: bool) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32 if exact else x.dtype)


def _stream(rows: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    width, depth = weight.shape
    kernels.linear[(-(-width // _COLUMNS),)](
        rows.contiguous(), weight, bias, out, len(rows), width, depth, ROWS=FEW, COLUMNS=_COLUMNS, DEPTH=_DEPTH,
        BIASED=bias is not None, num_warps=2, num_stages=3, **chain.options(),
    )  # fmt: skip


class FewRows(nn.Linear):
    """A linear layer through `linear`."""

    exact = False

    def forward(self, x: Tensor) -> Tensor:
        """See nn.Linear."""
        return linear(x, self.weight, self.bias, self.exact)


class Shared(nn.Module):
    """The joined product of layers with one input, computed when the first of them is called."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.sizes = [each.out_features for each in layers]
        self.register_buffer("weight", torch.cat([each.weight.data for each in layers]), persistent=False)
        biases = [each.bias for each in layers if each.bias is not None]
        self.register_buffer("bias", torch.cat([each.data for each in biases]) if biases else None, persistent=False)
        self.parts: tuple[Tensor, ...] = ()

    def forward(self, x: Tensor) -> None:
        """Compute the parts."""
        self.parts = linear(x, self.weight, self.bias, False).split(self.sizes, dim=-1)


class Part(nn.Module):
    """One of the joined layers: the first computes all, the others take theirs, and the last lets them go.

    A layer that kept them would hold that memory for each shape of passes.
    """

    def __init__(self, shared: Shared, index: int) -> None:
        super().__init__()
        self.shared = shared
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        """See nn.Linear."""
        if self.index == 0:
            self.shared(x)
        part = self.shared.parts[self.index]
        if self.index + 1 == len(self.shared.sizes):
            self.shared.parts = ()
        return part


def replace(model: nn.Module, head: nn.Linear) -> None:
    """Make all linear layers of the model `FewRows`, and those of one input one; the head's sums stay float32."""
    for names in JOINED:
        # Of their parents only: a list of the layers would keep the weights that the joined ones replace.
        for module in [each for each in model.modules() if hasattr(each, names[0])]:
            _join(module, names)
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FewRows
    head.exact = True  # a bfloat16 logit has ties


def _join(module: nn.Module, names: Sequence[str]) -> None:
    layers: list[Any] = [getattr(module, name) for name in names if type(getattr(module, name, None)) is nn.Linear]
    if len(layers) < len(names) or len({each.bias is None for each in layers}) > 1:
        return
    shared = Shared(layers)
    for index, name in enumerate(names):
        setattr(module, name, Part(shared, index))
    layers.clear()
    if shared.weight.is_cuda:
        torch.cuda.empty_cache()  # what they had is too small for the next, and torch would keep it
