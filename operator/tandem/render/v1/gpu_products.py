"""GPUs by the product that NVIDIA's GPU feature discovery writes on nodes (label nvidia.com/gpu.product).

Memory is the product's nominal one in GiB; compute capability: https://developer.nvidia.com/cuda-gpus. A product
that is not here is taken as it is: nothing is known, so nothing is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MIN_COMPUTE_CAPABILITY = (8, 0)
"""Ampere: what TensorRT-LLM's speculative decoding needs (support matrix of its guides)."""


@dataclass(frozen=True)
class Product:
    """What is known of a GPU."""

    memory_gib: float
    compute_capability: tuple[int, int]


PRODUCTS = {
    "Tesla-P100-PCIE-16GB": Product(16, (6, 0)),
    "Tesla-V100-SXM2-16GB": Product(16, (7, 0)),
    "Tesla-V100-SXM2-32GB": Product(32, (7, 0)),
    "Tesla-V100-PCIE-32GB": Product(32, (7, 0)),
    "Tesla-T4": Product(16, (7, 5)),
    "Quadro-RTX-8000": Product(48, (7, 5)),
    "NVIDIA-A100-SXM4-40GB": Product(40, (8, 0)),
    "NVIDIA-A100-PCIE-40GB": Product(40, (8, 0)),
    "NVIDIA-A100-SXM4-80GB": Product(80, (8, 0)),
    "NVIDIA-A100-80GB-PCIe": Product(80, (8, 0)),
    "NVIDIA-A30": Product(24, (8, 0)),
    "NVIDIA-A10": Product(24, (8, 6)),
    "NVIDIA-A10G": Product(24, (8, 6)),
    "NVIDIA-A40": Product(48, (8, 6)),
    "NVIDIA-RTX-A6000": Product(48, (8, 6)),
    "NVIDIA-L4": Product(24, (8, 9)),
    "NVIDIA-L40": Product(48, (8, 9)),
    "NVIDIA-L40S": Product(48, (8, 9)),
    "NVIDIA-GeForce-RTX-4090": Product(24, (8, 9)),
    "NVIDIA-RTX-6000-Ada-Generation": Product(48, (8, 9)),
    "NVIDIA-H100-PCIe": Product(80, (9, 0)),
    "NVIDIA-H100-80GB-HBM3": Product(80, (9, 0)),
    "NVIDIA-H100-NVL": Product(94, (9, 0)),
    "NVIDIA-H200": Product(141, (9, 0)),
    "NVIDIA-H200-NVL": Product(141, (9, 0)),
    "NVIDIA-GH200-480GB": Product(96, (9, 0)),
    "NVIDIA-B200": Product(180, (10, 0)),
}


def least_memory_gib(products: Sequence[str]) -> float | None:
    """Memory of the smallest of the products; None when one is not known, or there are none."""
    known = [PRODUCTS[product].memory_gib for product in products if product in PRODUCTS]
    return min(known) if known and len(known) == len(products) else None
