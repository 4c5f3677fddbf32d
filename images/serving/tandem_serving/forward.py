"""From a request's responses, one a prompt, to the one response of a unary client. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def merge(rows: list[dict[str, Array]]) -> dict[str, Array]:
    """Stack each prompt's tensors ([1, ...]) into [n, ...], in the order of `batch_index`.

    Shorter rows are filled with zeros (empty strings) at their ends; `num_output_tokens` and
    `num_input_tokens` tell what is real.
    """
    rows = sorted(rows, key=lambda row: int(row["batch_index"].reshape(-1)[0]))
    return {name: _stack([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _stack(arrays: list[Array]) -> Array:
    shape = np.max([array.shape for array in arrays], axis=0)
    fill: Any = b"" if arrays[0].dtype == np.object_ else 0
    stacked = np.full((len(arrays), *shape[1:]), fill, arrays[0].dtype)
    for i, array in enumerate(arrays):
        stacked[(i, *(slice(size) for size in array.shape[1:]))] = array[0]
    return stacked
