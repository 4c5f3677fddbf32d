"""Linear layers in tiles of one shape: 8 rows by 64 columns.

A product's bits depend on its shape (BLAS picks other kernels, other orders of summation), so every product
here is [8, K] by [K, 64]. The shape is small enough for OpenBLAS's kernels that skip packing, and a block of
weights stays in the cache for all tiles of rows.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

ROWS = 8
COLUMNS = 64


def tiles(rows: int) -> int:
    """Tiles that hold so many rows."""
    return -(-rows // ROWS)


def padded(columns: int) -> int:
    """Columns of a packed layer's output."""
    return -(-columns // COLUMNS) * COLUMNS


def pack(weight: FloatArray) -> FloatArray:
    """[out, in] as stored -> [blocks, in, 64]; columns beyond `out` are zero."""
    out, width = weight.shape
    full = np.zeros((padded(out), width), np.float32)
    full[:out] = weight
    return np.ascontiguousarray(full.reshape(-1, COLUMNS, width).transpose(0, 2, 1))


def blocks_of(out: FloatArray) -> FloatArray:
    """View of [tiles, 8, n] as [n / 64, tiles, 8, 64]: where `apply` writes. `out` must be contiguous."""
    count, rows, columns = out.shape
    return out.reshape(count, rows, columns // COLUMNS, COLUMNS).transpose(2, 0, 1, 3)


def apply(x: FloatArray, packed: FloatArray, out_blocks: FloatArray) -> None:
    """[tiles, 8, in] by a packed weight, into `blocks_of` an output [tiles, 8, n]."""
    np.matmul(x[None], packed[:, None], out=out_blocks)
