"""Programmatic dependent launch: a kernel's programs start while the one ahead of it ends.

Hopper's (compute capability 9.0). A step of a small model is hundreds of kernels of a few microseconds; their starts
and ends are a good part of it. The compiler's own kernels join in by `compiler`.
"""

import functools
from typing import Any

import torch
from torch._inductor import config


@functools.cache
def _possible() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


def options() -> dict[str, Any]:
    """Of a launch of one of `kernels`."""
    return {"CHAINED": True, "launch_pdl": True} if _possible() else {"CHAINED": False}


def compiler() -> None:
    """Let compiled kernels be launched so, too."""
    config.triton.enable_pdl = _possible()
