"""What holds for all tests."""

import sys

import reference_engine

__all__ = ["reference_engine"]

# OpenBLAS reads its environment, which that sets, while numpy loads: here, before any test does. With two threads and
# kernels that it does not expect, each small product waits for a thread that spins: a test's own reference engine,
# beside busy servers on all cores, took more than 15 s for 24 tokens (2.5 s with one thread).
assert "numpy" not in sys.modules, "a plugin of pytest loads numpy: OpenBLAS must be set up before"
