"""Folders of TensorRT engines, without engines: configurations and sparse files."""

import json
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "version": "1.2.1",
    "pretrained_config": {
        "dtype": "bfloat16",
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 8192,
        "head_size": 128,
        "vocab_size": 128256,
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
        "mapping": {"world_size": 4, "tp_size": 4, "pp_size": 1},
    },
    "build_config": {"max_seq_len": 4096},
}


def engine_folder(folder: Path, config: dict[str, Any], *ranks: int) -> Path:
    """A folder with the configuration and a sparse file of each rank's size."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for rank, size in enumerate(ranks):
        with (folder / f"rank{rank}.engine").open("wb") as file:
            file.truncate(size)
    return folder
