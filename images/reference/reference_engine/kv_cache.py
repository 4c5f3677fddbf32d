"""Keys and values of the sequences in the model, by slot."""

import numpy as np
import numpy.typing as npt

from reference_engine.config import CheckpointError, ModelConfig

FloatArray = npt.NDArray[np.float32]

BLOCK = 64


def blocks(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK)


def bytes_per_slot(config: ModelConfig, max_seq_len: int) -> int:
    """Memory of one slot, in bytes."""
    width = config.num_kv_heads * config.head_dim
    return 2 * config.num_layers * blocks(max_seq_len) * BLOCK * width * 4


def slots(budget: int, bytes_per_slot: int, max_seq_len: int, most: int) -> int:
    """Slots that fit into so many bytes, at most `most`. Raises CheckpointError where there is none."""
    count = min(most, budget // bytes_per_slot)
    if count < 1:
        raise CheckpointError(
            f"kv_cache_bytes is {budget}, one sequence of {max_seq_len} tokens takes {bytes_per_slot}: "
            "raise it, or lower max_seq_len"
        )
    return count


class KVCache:
    """`keys` [layers, slots, blocks, kv heads, head_dim, 64] and `values` [..., 64, head_dim], float32.

    Pages are the system's: memory that no sequence touched is not used.
    """

    def __init__(self, config: ModelConfig, slots: int, max_seq_len: int) -> None:
        lead = (config.num_layers, slots, blocks(max_seq_len), config.num_kv_heads)
        self.keys: FloatArray = np.zeros((*lead, config.head_dim, BLOCK), np.float32)
        self.values: FloatArray = np.zeros((*lead, BLOCK, config.head_dim), np.float32)

    def copy(self, source: int, destination: int, tokens: int) -> None:
        """Copy the first `tokens` of a slot, rounded up to blocks."""
        count = blocks(tokens)
        for array in (self.keys, self.values):
            array[:, destination, :count] = array[:, source, :count]
