"""A decoder of transformers as a `Backend`: slots on the device, one CUDA graph a shape."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from reference_engine import choice
from reference_engine.backend import Segment
from reference_engine.choice import Choice, Chosen, Pick
from reference_engine.torch_backend import attention, layout, sampling
from reference_engine.torch_backend.attention import SlotCache
from reference_engine.torch_backend.layout import Input, Shape
from reference_engine.torch_backend.ranks import Alone, Order
from reference_engine.torch_backend.sampling import Chooser, Unchosen


@dataclass(frozen=True)
class Logits:
    """On the device: `values` float32[rows, V] and `chosen` int32[rows], their argmax or what was drawn of them.

    The last rows may be padding.
    """

    values: Tensor
    chosen: Tensor


@dataclass(frozen=True)
class _Run:
    """A shape's CUDA graph, from `inputs` on the device to its logits; each of `hosts` fills `inputs` from a lane."""

    inputs: Tensor
    hosts: tuple[Input, ...]
    logits: Logits
    graph: torch.cuda.CUDAGraph


class _Lane:
    """Pinned memory of a pass that is under way: what it gets, and its tokens, there once it is `done`."""

    def __init__(self, rows: int) -> None:
        self.inputs = torch.zeros(layout.most_entries(rows), dtype=torch.int32, pin_memory=True)
        self.sampled = torch.zeros((rows, sampling.FIELDS), dtype=torch.int64, pin_memory=True)
        self.tokens = torch.zeros(rows, dtype=torch.int32, pin_memory=True)
        self.done = torch.cuda.Event()

    def ids(self, count: int) -> list[int]:
        """Its first tokens; waits for them."""
        self.done.synchronize()
        listed: list[int] = self.tokens[:count].tolist()
        return listed


log = logging.getLogger("reference_engine.torch")
_LANES = 2  # a pass is under way while the next is given
# Captures of two models at once would see each other's calls.
_capturing = threading.Lock()


class TorchModel:
    """See Backend; its logits stay on the device. The last slot of `cache`, [layers, slots, ...], takes the rows of
    padding.

    Of a model that is split over GPUs it is a rank's share. The leader's is the Backend; the others' are given what
    the leader's is, by `prepare`, `give` and `copy_kv`.
    """

    def __init__(self, module: nn.Module, cache: SlotCache, max_num_tokens: int, ranks: Alone | None = None) -> None:
        self.module = module
        self._ranks = ranks or Alone()
        self.cache = cache
        self._spare = cache.keys.shape[1] - 1
        self._device = cache.keys.device
        self._runs: dict[Shape, _Run] = {}
        self._max_num_tokens = max_num_tokens
        self._warmed = False
        # One for all shapes: each graph would keep its own.
        rows = layout.most_rows(max_num_tokens)
        chooser = Chooser if self._ranks.leads else Unchosen
        self._chooser = chooser(rows, module.config.vocab_size, self._device)
        self._cuda = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if self._cuda else None
        self._lanes = [_Lane(rows) for _ in range(_LANES)] if self._cuda else []
        self._turn = 0

    def forward(self, segments: Sequence[Segment]) -> Logits:
        """See Backend; returns while the device computes."""
        return self.give(Shape.of(segments), lambda given: given.fill(segments))

    @torch.inference_mode()
    def give(self, shape: Shape, fill: Callable[[Input], None]) -> Logits:
        """A pass of a shape, whose input `fill` writes."""
        if not self._cuda:
            inputs = torch.zeros(shape.entries, dtype=torch.int32)
            given = Input(inputs.numpy(), shape, self._spare)
            fill(given)
            self._ranks.order(Order.PASS, shape.numbers, given.array)
            return self._compute(inputs, shape)
        run = self._runs.get(shape) or self.prepare(shape)
        self._turn = (self._turn + 1) % _LANES
        lane = self._lanes[self._turn]
        lane.done.synchronize()  # the pass that had it has read its input
        fill(run.hosts[self._turn])
        self._ranks.order(Order.PASS, shape.numbers, run.hosts[self._turn].array)
        with torch.cuda.stream(self._stream):
            run.inputs.copy_(lane.inputs[: shape.entries], non_blocking=True)
            run.graph.replay()
            lane.done.record()
        return run.logits

    @torch.inference_mode()
    def choose(self, logits: Logits, choices: Sequence[Choice]) -> list[Pick]:
        """See Backend. Plain and sampled tokens are chosen on the device, all at once; others on the host."""
        ends = np.cumsum([each.rows for each in choices], dtype=int).tolist()
        firsts = [end - each.rows for end, each in zip(ends, choices, strict=True)]
        listed = self._tokens(logits, list(zip(firsts, choices, strict=True)))
        return [
            _listed(listed, first) if self._on_device(each) else self._on_host(logits.values[first:end], each)
            for first, end, each in zip(firsts, ends, choices, strict=True)
        ]

    def _tokens(self, logits: Logits, choices: Sequence[tuple[int, Choice]]) -> Callable[[], list[int]]:
        """Draw what is to be drawn; returns what waits for all rows' tokens."""
        count = sum(each.rows for _, each in choices)
        if not self._cuda:
            tokens: list[int] = logits.chosen[:count].tolist()
            return lambda: tokens
        lane = self._lanes[self._turn]
        sampled = [(first, each) for first, each in choices if sampling.handles(each)]
        with torch.cuda.stream(self._stream):
            if sampled:
                self._chooser.draw(sampled, lane.sampled)
            lane.tokens[:count].copy_(logits.chosen[:count], non_blocking=True)
            lane.done.record()
        if not choices:
            lane.done.synchronize()  # nothing else would wait, and prompts' pieces pile up ahead of arrivals
        return functools.cache(lambda: lane.ids(count))

    def _on_host(self, values: Tensor, each: Choice) -> Pick:
        @functools.cache
        def read() -> Pick:
            with torch.cuda.stream(self._stream):
                return choice.on_host(values.cpu().numpy(), [each])[0]

        def pick(row: int) -> Chosen:
            return read()(row)

        return pick

    def _on_device(self, each: Choice) -> bool:
        return each.plain or (self._cuda and sampling.handles(each))

    def feeds(self, choices: Sequence[Choice]) -> bool:
        """See Backend: where the device chooses."""
        return all(self._on_device(each) for each in choices)

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """See Backend."""
        self._ranks.order(Order.COPY_KV, (source, destination, tokens))
        with torch.cuda.stream(self._stream):
            for each in (self.cache.keys, self.cache.values):
                each[:, destination, :, :tokens] = each[:, source, :, :tokens]

    def warm(self, max_rows: int, max_draft_len: int) -> None:
        """Prepare draws, and the graphs of all passes of up to so many sequences with up to so many draft tokens.

        The largest come first: smaller passes then take their memory from what those had.
        """
        shapes = layout.of_passes(max_rows, max_draft_len, self._max_num_tokens)
        for shape in sorted(shapes, key=lambda each: (each.wanted, each.tokens), reverse=True):
            if self._cuda and shape not in self._runs:
                self.prepare(shape)
        for lane in self._lanes[:1]:
            with torch.cuda.stream(self._stream):
                self._chooser.warm(lane.sampled)
        if self._cuda:
            torch.cuda.empty_cache()  # passes outside of graphs come no more
        self._warmed = True

    @torch.inference_mode()
    def prepare(self, shape: Shape) -> _Run:
        """Compile and capture a shape, over rows of padding."""
        self._ranks.order(Order.PREPARE, shape.numbers)
        started = time.monotonic()
        hosts = tuple(Input(lane.inputs[: shape.entries].numpy(), shape, self._spare) for lane in self._lanes)
        given = torch.zeros(shape.entries, dtype=torch.int32)
        Input(given.numpy(), shape, self._spare).fill([])
        inputs = given.to(self._device)
        graph = torch.cuda.CUDAGraph()
        pool = next((run.graph.pool() for run in self._runs.values()), None)
        with _capturing, torch.cuda.stream(self._stream):
            chosen = self._chooser.chosen.clone()  # the next pass may take its tokens from there
            self._compute(inputs, shape)
            self._chooser.chosen.copy_(chosen)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                logits = self._compute(inputs, shape)
        self._runs[shape] = _Run(inputs, hosts, logits, graph)
        if self._warmed:
            log.info("a new shape of passes: requests waited %.2f s for %s", time.monotonic() - started, shape)
        return self._runs[shape]

    def _compute(self, inputs: Tensor, shape: Shape) -> Logits:
        ids, positions, slots, tile_row, tile_count, wanted = inputs.split(list(shape.sizes().values()))
        self._chooser.feed(ids)
        self._ranks.share(ids)
        token = attention.current.set(attention.Pass(positions, slots, tile_row, tile_count, shape.tile_tokens))
        try:
            out = self.module(
                input_ids=ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=wanted
            )
        finally:
            attention.current.reset(token)
        self._chooser.highest(out.logits[0])
        return Logits(self._chooser.values[: shape.wanted], self._chooser.chosen[: shape.wanted])


def _listed(tokens: Callable[[], list[int]], first: int) -> Pick:
    return lambda row: Chosen(tokens()[first + row])
