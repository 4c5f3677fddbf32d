"""The speculative BLS with clocks: which CPU time of its threads goes to which stage.

It takes the place of ours in the benchmark and is ours, whose functions are timed by their threads' CPU clocks, what
they call apart. The clocks cost something themselves: about a microsecond a call.
"""

import importlib.util
import json
import pkgutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = Path(__file__).resolve().parents[4] / "images/serving/models/speculative_bls/1/model.py"
WRITE_SECONDS = 0.1
EXECUTE = "new requests"
# As entry points are named, in tandem_serving.
STAGES = {
    EXECUTE: [
        "bls.service:BlsService.submit",
        "bls.service:BlsService._sequence",
        "bls.request:BlsParser.parse",
        "bls.runner:Runner.add",
    ],
    "an engine call's tensors": ["bls.runner:Runner._call"],
    "an engine call's way: Triton's stub, waking up": ["adapter.engine:EngineModel.execute"],
    "reading its answer": ["adapter.engine:_outputs"],
    "loops, acceptance, schedule": [
        "bls.runner:Runner._take",
        "bls.runner:Runner._settle",
        "bls.rounds:Rounds.answered",
        "bls.rounds:Rounds.call_ended",
        "bls.rounds:Rounds.start",
        "bls.rounds:Rounds.sent",
    ],
    "the draft length": ["bls.draft_length.policy:AdaptiveDraftLength.rounds_ended"],
    "texts": ["bls.chunks:BlsWriter.write"],
    "counters": ["bls.sequence:BlsSequence._make", "bls.sequence:BlsSequence._count"],
    "sending": ["adapter.responder:TritonResponder.send"],
    "places of those that are over": ["bls.runner:Runner._delivered"],
    "who has left": ["adapter.responder:TritonResponder.cancelled"],
    "deadlines": ["bls.runner:Runner.watch", "requests.active:ActiveRequests.watch"],
    "metrics": ["bls.service:BlsService._report"],
}


class Clocks:
    """CPU seconds and calls by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._within = threading.local()

    def time(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed; what other timed functions take within it is theirs."""

        def timed(*arguments: Any, **named: Any) -> Any:
            inner: list[float] = self._within.__dict__.setdefault("inner", [])
            inner.append(0.0)
            begin = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                took, others = time.thread_time() - begin, inner.pop()
                self.seconds[stage] += took - others
                self.calls[stage] += 1
                if inner:
                    inner[-1] += took

        return timed

    def write(self, path: Path) -> None:
        """Write what was counted, again and again."""
        while True:
            time.sleep(WRITE_SECONDS)
            new = path.with_suffix(".new")
            new.write_text(json.dumps({stage: [self.seconds[stage], self.calls[stage]] for stage in STAGES}))
            new.replace(path)


def _ours() -> Any:
    """The class of our model."""
    spec = importlib.util.spec_from_file_location("ours", OURS)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TritonPythonModel


def _wind_up() -> Clocks:
    clocks = Clocks()
    for stage, names in STAGES.items():
        for name in names:
            module, _, within = name.partition(":")
            owner_name, _, function = within.rpartition(".")
            owner = pkgutil.resolve_name(f"tandem_serving.{module}:{owner_name}")
            setattr(owner, function, clocks.time(stage, getattr(owner, function)))
    return clocks


_Ours: Any = _ours()
_clocks = _wind_up()


class TritonPythonModel(_Ours):  # type: ignore[misc]
    """The class that Triton's Python backend looks for."""

    execute = _clocks.time(EXECUTE, _Ours.execute)

    def initialize(self, args: dict[str, str]) -> None:
        """As ours; the clocks are written to the file that the parameter `clocks` names."""
        super().initialize(args)
        path = json.loads(args["model_config"])["parameters"]["clocks"]["string_value"]
        threading.Thread(target=_clocks.write, args=(Path(path),), daemon=True).start()
