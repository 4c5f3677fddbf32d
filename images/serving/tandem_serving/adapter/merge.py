"""From a request's responses, one a prompt or sequence, to one response. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def merge(rows: list[dict[str, Array]]) -> dict[str, Array]:
    """Stack each prompt's tensors ([1, ...]) into [n, ...], in the order of `batch_index`.

    Shorter rows are filled with zeros (empty strings) at their ends; `num_output_tokens` and
    `num_input_tokens` tell what is real. A row may lack what others have, as a prompt for which nothing was drafted
    has no acceptance: it is zeros (empty strings) there.
    """
    rows = sorted(rows, key=lambda row: int(row["batch_index"].reshape(-1)[0]))
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _stack([row.get(name) for row in rows]) for name in names}


def _stack(arrays: list[Array | None]) -> Array:
    present = [array for array in arrays if array is not None]
    if len(present) == len(arrays) and len({array.shape for array in present}) == 1:
        return np.concatenate(present)
    shape = np.max([array.shape for array in present], axis=0)
    fill: Any = b"" if present[0].dtype == np.object_ else 0
    stacked = np.full((len(arrays), *shape[1:]), fill, present[0].dtype)
    for i, array in enumerate(arrays):
        if array is not None:
            stacked[(i, *(slice(size) for size in array.shape[1:]))] = array[0]
    return stacked
