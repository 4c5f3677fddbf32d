"""The forward pass of a Llama model over a mixed batch."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from reference_engine import choice, linear
from reference_engine.attention import Attention, Plan, Span
from reference_engine.backend import Segment
from reference_engine.choice import Choice, Pick
from reference_engine.config import ModelConfig
from reference_engine.kv_cache import KVCache
from reference_engine.layout import Layer, Layout

FloatArray = npt.NDArray[np.float32]


class _Store:
    """Memory for the activations of `tiles` tiles, [tiles, 8, width] each."""

    def __init__(self, config: ModelConfig, tiles: int) -> None:
        self.heads = config.num_heads + 2 * config.num_kv_heads
        self.x = _zeros(tiles, config.hidden_size)
        self.normed = _zeros(tiles, config.hidden_size)
        self.qkv = _zeros(tiles, linear.padded(self.heads * config.head_dim))
        self.attended = _zeros(tiles, config.num_heads * config.head_dim)
        self.projected = _zeros(tiles, linear.padded(config.hidden_size))
        self.gate_up = _zeros(tiles, 2 * linear.padded(config.intermediate_size))
        self.activated = _zeros(tiles, linear.padded(config.intermediate_size))


class _Buffers:
    """The first `count` tiles of a store, and the views that the pass needs."""

    def __init__(self, config: ModelConfig, store: _Store, count: int) -> None:
        self.x, self.normed, self.attended = store.x[:count], store.normed[:count], store.attended[:count]
        self.activated = store.activated[:count]
        self.gate, self.up = np.split(store.gate_up[:count], 2, axis=-1)
        self.delta = store.projected[:count, :, : config.hidden_size]
        self.qkv_blocks = linear.blocks_of(store.qkv[:count])
        self.projected_blocks = linear.blocks_of(store.projected[:count])
        self.gate_up_blocks = linear.blocks_of(store.gate_up[:count])
        self.x_rows = self.x.reshape(-1, config.hidden_size)
        self.attended_rows = self.attended.reshape(len(self.x_rows), -1)
        rows = store.qkv[:count].reshape(len(self.x_rows), -1)[:, : store.heads * config.head_dim]
        self.qkv_heads = rows.reshape(len(rows), store.heads, config.head_dim)
        self.rotated = self.qkv_heads.view(np.complex64)[:, : config.num_heads + config.num_kv_heads]


def _zeros(count: int, width: int) -> FloatArray:
    return np.zeros((count, linear.ROWS, width), np.float32)


class Llama:
    """A Llama model on the CPU: a `Backend` whose logits are float32[rows, V]. Not thread-safe."""

    def __init__(self, config: ModelConfig, layout: Layout, cache: KVCache, max_num_tokens: int) -> None:
        self.config = config
        self._layout = layout
        self._cache = cache
        self._attention = Attention(config, cache)
        self._store = _Store(config, linear.tiles(max_num_tokens))
        self._buffers: dict[int, _Buffers] = {}

    def copy_kv(self, source: int, destination: int, tokens: int) -> None:
        """See Backend."""
        self._cache.copy(source, destination, tokens)

    def choose(self, logits: FloatArray, choices: Sequence[Choice]) -> list[Pick]:
        """See Backend."""
        return choice.on_host(logits, choices)

    def feeds(self, choices: Sequence[Choice]) -> bool:
        """See Backend: the tokens are known when the pass is over."""
        return False

    def forward(self, segments: Sequence[Segment]) -> FloatArray:
        """See Backend."""
        spans = [Span(each.slot, each.start, len(each.tokens)) for each in segments]
        plan = self._attention.begin(spans)
        count = len(plan.rows.positions)
        buffers = self._buffers_for(linear.tiles(count))
        rows = buffers.x_rows
        ids = np.concatenate([each.tokens for each in segments])
        np.take(self._layout.embedding, ids, axis=0, out=rows[:count], mode="clip")
        rotation = self._layout.rotation[plan.rows.positions][:, None]
        with np.errstate(over="ignore"):  # exp of a large negative gate: the quotient is the zero it should be
            for index, layer in enumerate(self._layout.layers):
                self._attend(buffers, layer, plan, index, rotation)
                self._feed_forward(buffers, layer)
        return self._logits(rows, segments)

    def _buffers_for(self, tiles: int) -> _Buffers:
        if tiles not in self._buffers:
            self._buffers[tiles] = _Buffers(self.config, self._store, tiles)
        return self._buffers[tiles]

    def _attend(
        self, buffers: _Buffers, layer: Layer, plan: Plan, index: int, rotation: npt.NDArray[np.complex64]
    ) -> None:
        count = len(plan.rows.positions)
        _normalize(buffers.x, self._layout.norm_eps, buffers.normed)
        linear.apply(buffers.normed, layer.qkv, buffers.qkv_blocks)
        rotated = buffers.rotated[:count]
        rotated *= rotation
        self._attention.attend(plan, index, buffers.qkv_heads[:count], buffers.attended_rows[:count])
        linear.apply(buffers.attended, layer.o, buffers.projected_blocks)
        buffers.x += buffers.delta

    def _feed_forward(self, buffers: _Buffers, layer: Layer) -> None:
        """x += down(silu(gate) * up); signs as `layout` says."""
        _normalize(buffers.x, self._layout.norm_eps, buffers.normed)
        linear.apply(buffers.normed, layer.gate_up, buffers.gate_up_blocks)
        activated = buffers.activated
        np.exp(buffers.gate, out=activated)
        activated += 1
        np.divide(buffers.gate, activated, out=activated)
        activated *= buffers.up
        linear.apply(activated, layer.down, buffers.projected_blocks)
        buffers.x += buffers.delta

    def _logits(self, rows: FloatArray, segments: Sequence[Segment]) -> FloatArray:
        """Logits of each segment's last rows."""
        ends = accumulate(len(each.tokens) for each in segments)
        index = [row for end, each in zip(ends, segments, strict=True) for row in range(end - each.logits, end)]
        x = np.zeros((linear.tiles(len(index)), linear.ROWS, rows.shape[1]), np.float32)
        x.reshape(-1, rows.shape[1])[: len(index)] = rows[index]
        _normalize(x, self._layout.norm_eps, x)
        out = np.empty((*x.shape[:2], len(self._layout.lm_head) * linear.COLUMNS), np.float32)
        linear.apply(x, self._layout.lm_head, linear.blocks_of(out))
        return out.reshape(-1, out.shape[-1])[: len(index), : self.config.vocab_size]


def _normalize(x: FloatArray, eps: float, out: FloatArray) -> None:
    """x / sqrt(sum(x * x) + eps) of each row; the norm's weight is in the projection that follows."""
    scale = np.einsum("trd,trd->tr", x, x)
    scale += np.float32(eps)
    np.sqrt(scale, out=scale)
    np.divide(x, scale[..., None], out=out)
