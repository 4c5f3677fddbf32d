"""GPU memory that a model takes beyond its weights and KV cache: what `checkpoints.memory` must count as overhead.

`python -m bench.gpu.memory --checkpoints FOLDER --out FILE` loads each model of `bench.gpu.checkpoints` with several
sizes, one after the other, and prints what the driver and torch count next to the estimate.
"""

import argparse
import gc
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
import torch

from reference_engine.torch_backend import checkpoints, loading
from reference_engine.torch_backend.loading import Sizes

GIB = 1 << 30
# Slots, tokens of a sequence, tokens of a pass.
SIZES = ((16, 1024, 512), (64, 1024, 1024), (64, 1024, 4096))


@dataclass(frozen=True)
class Taken:
    """GiB of one model: `driver` is all that left the device's free memory, `peak` the most that torch reserved."""

    role: str
    slots: int
    pass_tokens: int
    weights: float
    kv_cache: float
    driver: float
    peak: float
    estimated: float

    @property
    def overhead(self) -> float:
        """GiB beyond weights and KV cache, at the highest point of loading and capturing."""
        return max(self.driver, self.peak) - self.weights - self.kv_cache


def measure(folder: Path, role: str, slots: int, longest: int, rows: int) -> Taken:
    """Load a model, capture its graphs, and see what is gone. CUDA's context is not in it: it exists already."""
    torch.cuda.reset_peak_memory_stats()
    before, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    scheduler = loading.load(folder / role, Sizes(slots, longest, rows), 1 << 40)
    torch.cuda.synchronize()
    driver, peak = before - torch.cuda.mem_get_info()[0], torch.cuda.max_memory_reserved() - reserved
    needed = checkpoints.memory(folder / role, slots, longest)
    del scheduler
    gc.collect()
    torch.cuda.empty_cache()
    sizes = [each / GIB for each in (needed.weights, needed.kv_cache, driver, peak, needed.total)]
    return Taken(role, slots, rows, *sizes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.memory", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    free, total = torch.cuda.mem_get_info()
    found: dict[str, Any] = {"card": torch.cuda.get_device_name(), "context": (total - free) / GIB, "models": []}
    for role in ("draft", "target"):
        for slots, longest, rows in SIZES:
            taken = measure(options.checkpoints, role, slots, longest, rows)
            print(f"{taken}, overhead {taken.overhead:.2f} GiB", flush=True)
            found["models"].append({**asdict(taken), "overhead": taken.overhead})
            options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
