"""Importing this makes `triton` the tests' package, also where the compiler of that name is installed, which a
benchmark's process does not need."""

import sys
import types
from pathlib import Path

TESTS = Path(__file__).resolve().parents[3]
FOLDER = str(TESTS / "triton")
if FOLDER not in getattr(sys.modules.get("triton"), "__path__", ()):
    sys.modules["triton"] = _triton = types.ModuleType("triton")
    _triton.__path__ = [FOLDER]
