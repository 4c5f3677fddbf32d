"""GPUs by the product that NVIDIA's GPU feature discovery writes on nodes (label nvidia.com/gpu.product).

Memory is the product's nominal one in GiB; compute capability: https://developer.nvidia.com/cuda-gpus. A product
that is not here is taken as it is: nothing is known, so nothing is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace


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


SHARED = "-SHARED"
"""End of the label of a GPU that several pods have at a time: time-slicing, MPS."""
SLICE = re.compile(r"-MIG-\d+g\.(\d+)gb")
"""In the label of a node whose GPUs are all cut alike (MIG strategy `single`), with the slice's memory in GB.
https://github.com/NVIDIA/k8s-device-plugin, gpu-feature-discovery."""


def product(label: str) -> Product | None:
    """What is known of the GPU, or slice of one, by a node's label."""
    whole, slice_of = label.removesuffix(SHARED), SLICE.search(label)
    found = PRODUCTS.get(whole[: slice_of.start()] if slice_of else whole)
    return replace(found, memory_gib=float(slice_of[1])) if found and slice_of else found


def least_memory_gib(products: Sequence[str]) -> float | None:
    """Memory of the smallest of the products; None when one is not known, or there are none."""
    found = [product(label) for label in products]
    known = [each.memory_gib for each in found if each]
    return min(known) if known and len(known) == len(products) else None


def slice_memory_gib(resource_name: str) -> float | None:
    """Memory of a MIG slice by its resource, such as nvidia.com/mig-3g.40gb."""
    found = re.search(r"/mig-\d+g\.(\d+)gb", resource_name)
    return float(found[1]) if found else None
