"""Environment of OpenBLAS, numpy's matrix library. Imports no numpy: OpenBLAS reads it while loading."""

import os
from pathlib import Path

# By x86 features; OpenBLAS before 0.3.24 takes processors it does not know for a Prescott (SSE3).
_CORES = (
    ("SkylakeX", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("Haswell", {"avx2", "fma"}),
)


def configure() -> None:
    """One thread (results depend on the split, and engines share the machine) and the best kernels.

    What the environment already says stays. No effect where numpy is loaded already.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    core = best_core(_cpu_flags())
    if core:
        os.environ.setdefault("OPENBLAS_CORETYPE", core)


def best_core(flags: set[str]) -> str:
    """OpenBLAS's name of the best x86 kernels for these cpuinfo flags; "": leave it to OpenBLAS."""
    return next((name for name, needs in _CORES if needs <= flags), "")


def _cpu_flags() -> set[str]:
    """Feature flags of the first processor; none where there is no Linux x86 cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
