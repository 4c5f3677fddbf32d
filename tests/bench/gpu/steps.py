"""Time of a pass against what it must read."""

import statistics
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch

from bench.gpu import shapes
from reference_engine.backend import Segment
from reference_engine.choice import Choice
from reference_engine.request import Request
from reference_engine.torch_backend.layout import Shape
from reference_engine.torch_backend.loading import Sizes
from reference_engine.torch_backend.model import TorchModel

CONTEXTS = (128, 1000, 4000)
ROWS = (1, 4, 16, 64)
TOKENS = (1, 5, 9)
REPEATS = 20


@dataclass(frozen=True)
class Step:
    """`gpu_ms` of the graph alone, `step_ms` with the host's part: forward, choice, and waiting for it."""

    shape: str
    rows: int
    tokens: int
    context: int
    gpu_ms: float
    step_ms: float
    bound_ms: float

    @property
    def line(self) -> str:
        """For reading."""
        return (
            f"{self.shape} {self.rows:3} x {self.tokens} at {self.context:4}: {self.gpu_ms:7.3f} ms,"
            f" bound {self.bound_ms:7.3f}, {self.gpu_ms / self.bound_ms:.2f} x; with the host {self.step_ms:7.3f}"
        )


def measure(model: TorchModel, shape: str, size: shapes.Bytes, per_second: float) -> list[Step]:
    """All of ROWS x TOKENS x CONTEXTS."""
    steps = []
    for context in CONTEXTS:
        for rows in ROWS:
            for tokens in TOKENS:
                ids = np.arange(tokens, dtype=np.int32) + 5
                segments = [Segment(slot, context, ids, tokens) for slot in range(rows)]
                host = _host_seconds(model, segments)
                gpu = shapes.seconds(model._runs[Shape.of(segments)].graph.replay, REPEATS)
                read = size.weights + size.per_token * rows * (context + tokens)
                step = Step(shape, rows, tokens, context, gpu * 1e3, host * 1e3, read / per_second * 1e3)
                print(step.line, flush=True)
                steps.append(step)
    return steps


def _host_seconds(model: TorchModel, segments: list[Segment]) -> float:
    request = Request(segments[0].tokens, 1)
    choices = [Choice(request, each.tokens, 0, each.logits) for each in segments]
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for pick in model.choose(model.forward(segments), choices):
            pick(0)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def run() -> list[dict[str, object]]:
    """The command."""
    per_second = shapes.bandwidth()
    print(f"{torch.cuda.get_device_name()}: memory is read at {per_second / 1e12:.2f} TB/s", flush=True)
    steps = []
    for shape, config in shapes.CONFIGS.items():
        started = time.perf_counter()
        model, size = shapes.load(config, Sizes(slots=64, max_seq_len=4096 + 64, max_num_tokens=1024))
        print(f"{shape}: {size.weights / 1e9:.2f} GB of weights, loaded in {time.perf_counter() - started:.1f} s")
        steps += measure(model, shape, size, per_second)
        print(
            f"{shape}: {time.perf_counter() - started:.1f} s in all, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB"
        )
        del model
        torch.cuda.empty_cache()
    return [asdict(step) for step in steps]
