"""The reference engine's model with a meter: how long calls were in it, and how many.

It takes the place of ours in the benchmark and is ours. Triton's own durations end where `execute` returns, and the
engine works on.
"""

import importlib.util
import json
import mmap
import struct
import threading
import time
from pathlib import Path
from typing import Any

OURS = Path(__file__).resolve().parents[5] / "images/reference/models/tensorrt_llm/1/model.py"
WORK = struct.Struct("dq")  # as bench.bls.stub has it


def _ours() -> Any:
    spec = importlib.util.spec_from_file_location("ours", OURS)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """Seconds in which any call was in the engine, and calls, in a file for `bench.bls.stub.Meter`. Thread-safe."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), WORK.size)
        self._lock = threading.Lock()
        self._inside = 0
        self._since = self._seconds = 0.0
        self._calls = 0

    def enter(self) -> None:
        """A call came."""
        with self._lock:
            if not self._inside:
                self._since = time.perf_counter()
            self._inside += 1
            self._calls += 1

    def leave(self) -> None:
        """It was answered."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._seconds += time.perf_counter() - self._since
            WORK.pack_into(self._file, 0, self._seconds, self._calls)


_module = _ours()
_clock: Clock


class Exchange(_module.Exchange):  # type: ignore[name-defined]
    """A call, timed from `execute` to its end."""

    def __init__(self, request: Any, *others: Any) -> None:
        _clock.enter()
        super().__init__(request, *others)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "closed" and value and not self.closed:
            _clock.leave()
        super().__setattr__(name, value)


_module.Exchange = Exchange


class TritonPythonModel(_module.TritonPythonModel):  # type: ignore[name-defined]
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """As ours; the clock counts in the file that the parameter `meter` names."""
        global _clock  # noqa: PLW0603 - a model has a process of its own
        _clock = Clock(Path(json.loads(args["model_config"])["parameters"]["meter"]["string_value"]))
        super().initialize(args)
