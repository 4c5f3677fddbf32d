"""A decoder of transformers as a `Backend`: slots on the device, one CUDA graph a shape."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from reference_engine import choice
from reference_engine.backend import Segment
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.torch_backend import attention, layout, sampling
from reference_engine.torch_backend.attention import SlotCache
from reference_engine.torch_backend.layout import Shape

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Logits:
    """On the device: `values` float32[rows, V], and `top` int64[rows], their argmax; rows beyond a pass's are padding."""

    values: Tensor
    top: Tensor


@dataclass(frozen=True)
class _Run:
    """A shape's CUDA graph, its input and its outputs."""

    inputs: Tensor
    logits: Logits
    graph: torch.cuda.CUDAGraph


class TorchModel:
    """See Backend; its logits stay on the device. The last slot of the caches takes the rows of padding."""

    def __init__(self, module: nn.Module, caches: Sequence[SlotCache], max_num_tokens: int) -> None:
        self.module = module
        self._caches = caches
        self._spare = len(caches[0].keys) - 1
        self._device = caches[0].keys.device
        self._cuda = self._device.type == "cuda"
        self._runs: dict[Shape, _Run] = {}
        largest = sum(Shape(*[layout.padded(max_num_tokens)] * 2, 1, layout.padded(max_num_tokens)).sizes().values())
        self._host = torch.empty(largest, dtype=torch.int32, pin_memory=self._cuda)
        self._stream = torch.cuda.Stream(self._device) if self._cuda else None
        self._copied = torch.cuda.Event() if self._cuda else None

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> Logits:
        """See Backend; returns while the device computes."""
        shape = Shape.of(segments)
        size = sum(shape.sizes().values())
        if self._copied is not None:
            self._copied.synchronize()
        layout.fill(self._host[:size].numpy(), shape, segments, self._spare)
        if self._copied is None:
            return self._compute(self._host[:size], shape)
        with torch.cuda.stream(self._stream):
            run = self._runs.get(shape) or self._prepare(shape, size)
            run.inputs.copy_(self._host[:size], non_blocking=True)
            self._copied.record()
            run.graph.replay()
            return run.logits

    @torch.inference_mode()
    def choose(self, logits: Logits, choices: Sequence[Choice]) -> list[Pick]:
        """See Backend. Plain and sampled tokens are chosen on the device, all at once; others on the host."""
        if not choices:
            return []
        with torch.cuda.stream(self._stream):
            ends = np.cumsum([each.rows for each in choices]).tolist()
            tokens = logits.top
            sampled = [(end - each.rows, each) for end, each in zip(ends, choices, strict=True) if self._samples(each)]
            if sampled:
                tokens = sampling.choose(logits.values, tokens, sampled)
            ids = tokens[: ends[-1]].tolist()
            return [
                _listed(ids[end - each.rows : end])
                if each.plain or self._samples(each)
                else choice.on_host(logits.values[end - each.rows : end].cpu().numpy(), [each])[0]
                for end, each in zip(ends, choices, strict=True)
            ]

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """See Backend."""
        with torch.cuda.stream(self._stream):
            for cache in self._caches:
                cache.keys[destination, :, :tokens] = cache.keys[source, :, :tokens]
                cache.values[destination, :, :tokens] = cache.values[source, :, :tokens]

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Prepare graphs before the first request."""
        for shape in shapes:
            if shape not in self._runs:
                with torch.inference_mode(), torch.cuda.stream(self._stream):
                    self._prepare(shape, sum(shape.sizes().values()))

    def _samples(self, each: Choice) -> bool:
        return self._cuda and sampling.handles(each)

    def _prepare(self, shape: Shape, size: int) -> _Run:
        """The shape's run; the first time it is compiled and captured, over rows of padding."""
        inputs = torch.zeros(size, dtype=torch.int32, device=self._device)
        inputs[2 * shape.tokens : 3 * shape.tokens] = self._spare
        self._compute(inputs, shape)
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        pool = next((run.graph.pool() for run in self._runs.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            logits = self._compute(inputs, shape)
        self._runs[shape] = _Run(inputs, logits, graph)
        return self._runs[shape]

    def _compute(self, inputs: Tensor, shape: Shape) -> Logits:
        ids, positions, slots, tile_row, tile_count, wanted = inputs.split(list(shape.sizes().values()))
        token = attention.current.set(attention.Pass(positions, slots, tile_row, tile_count, shape.tile_tokens))
        try:
            out = self.module(
                input_ids=ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=wanted
            )
        finally:
            attention.current.reset(token)
        values = out.logits[0].float()
        return Logits(values, values.argmax(-1))


def _listed(tokens: list[int]) -> Pick:
    return lambda row: Chosen(tokens[row])
