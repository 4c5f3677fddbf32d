"""A decoder of transformers as a `Backend`: slots on the device, one CUDA graph a shape."""

import math
import threading
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
from reference_engine.torch_backend.layout import Input, Shape

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Logits:
    """On the device: `values` float32[rows, V] and `top` int64[rows], their argmax; the last rows may be padding.

    `tokens` is `top` on the host, once the pass has ended.
    """

    values: Tensor
    top: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class _Run:
    """A shape's CUDA graph, from its input on the host to its tokens there."""

    input: Input
    logits: Logits
    graph: torch.cuda.CUDAGraph


# Captures of two models at once would see each other's calls.
_capturing = threading.Lock()


class TorchModel:
    """See Backend; its logits stay on the device. The last slot of the caches takes the rows of padding."""

    def __init__(self, module: nn.Module, caches: Sequence[SlotCache], max_num_tokens: int) -> None:
        self.module = module
        self._caches = caches
        self._spare = len(caches[0].keys) - 1
        self._device = caches[0].keys.device
        self._runs: dict[Shape, _Run] = {}
        # One for all shapes: each graph would keep its own.
        rows = layout.padded(max_num_tokens)
        self._values = torch.empty((rows, module.config.vocab_size), dtype=torch.float32, device=self._device)
        self._cuda = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if self._cuda else None
        self._done = torch.cuda.Event() if self._cuda else None

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> Logits:
        """See Backend; returns while the device computes."""
        shape = Shape.of(segments)
        if self._done is None:
            inputs = torch.zeros(shape.entries, dtype=torch.int32)
            Input(inputs.numpy(), shape, self._spare).fill(segments)
            return self._compute(inputs, shape)
        run = self._runs.get(shape) or self._prepare(shape)
        self._done.synchronize()  # the last pass has read its input
        run.input.fill(segments)
        with torch.cuda.stream(self._stream):
            run.graph.replay()
            self._done.record()
        return run.logits

    @torch.inference_mode()
    def choose(self, logits: Logits, choices: Sequence[Choice]) -> list[Pick]:
        """See Backend. Plain and sampled tokens are chosen on the device, all at once; others on the host."""
        if not choices:
            return []
        ends = np.cumsum([each.rows for each in choices]).tolist()
        firsts = [end - each.rows for end, each in zip(ends, choices, strict=True)]
        sampled = [(first, each) for first, each in zip(firsts, choices, strict=True) if self._samples(each)]
        if sampled:
            with torch.cuda.stream(self._stream):
                ids = sampling.choose(logits.values, logits.top, sampled).tolist()
        else:
            if self._done is not None:
                self._done.synchronize()
            ids = logits.tokens.tolist()
        return [
            _listed(ids[end - each.rows : end])
            if each.plain or self._samples(each)
            else choice.on_host(self._on_host(logits.values[end - each.rows : end]), [each])[0]
            for end, each in zip(ends, choices, strict=True)
        ]

    def _on_host(self, values: Tensor) -> FloatArray:
        with torch.cuda.stream(self._stream):
            array: FloatArray = values.cpu().numpy()
        return array

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """See Backend."""
        with torch.cuda.stream(self._stream):
            for cache in self._caches:
                cache.keys[destination, :, :tokens] = cache.keys[source, :, :tokens]
                cache.values[destination, :, :tokens] = cache.values[source, :, :tokens]

    def warm(self, max_rows: int, max_draft_len: int) -> None:
        """Prepare the graphs of decoding up to so many sequences, each with up to so many draft tokens."""
        for shape in layout.of_verification(max_rows, max_draft_len):
            if self._cuda and shape not in self._runs:
                self._prepare(shape)

    def _samples(self, each: Choice) -> bool:
        return self._cuda and sampling.handles(each)

    @torch.inference_mode()
    def _prepare(self, shape: Shape) -> _Run:
        """Compile and capture a shape, over rows of padding."""
        torch.cuda.set_device(self._device)  # a thread's own
        host = torch.zeros(shape.entries, dtype=torch.int32, pin_memory=True)
        given = Input(host.numpy(), shape, self._spare)
        given.fill([])
        tokens = torch.zeros(shape.wanted, dtype=torch.int64, pin_memory=True)
        graph = torch.cuda.CUDAGraph()
        pool = next((run.graph.pool() for run in self._runs.values()), None)
        with _capturing, torch.cuda.stream(self._stream):
            self._compute(host.to(self._device), shape)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                logits = self._compute(host.to(self._device, non_blocking=True), shape)
                tokens.copy_(logits.top, non_blocking=True)
        self._runs[shape] = _Run(given, Logits(logits.values, logits.top, tokens), graph)
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
        values = self._values[: shape.wanted]
        values.copy_(out.logits[0])
        top = _argmax(values)
        return Logits(values, top, top)


def _argmax(values: Tensor) -> Tensor:
    """Of each row, the first of the largest. In two steps, so that one long row is not one program's work."""
    parts = math.gcd(values.shape[1], 512)
    tops, at = values.view(len(values), parts, -1).max(-1)
    part = tops.argmax(-1, keepdim=True)
    return (at.gather(1, part) + part * (values.shape[1] // parts))[:, 0]


def _listed(tokens: list[int]) -> Pick:
    return lambda row: Chosen(tokens[row])
