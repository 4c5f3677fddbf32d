"""The trained pair in the shapes of 8B and 1B as checkpoints, and what their passes take on this GPU.

`python -m bench.gpu.checkpoints --out FOLDER` (as `bench.gpu`) writes FOLDER/{target,draft}, 16 and 2.5 GB, which the
reference engine loads as any checkpoint, and FOLDER/steps.json: ms of the passes of rounds, by "role rows tokens".
With `--target 70B/24` the target has 45 GB: the shape of 70B with 24 of its 80 layers.
"""

import argparse
import importlib.metadata
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig

import reference_engine
from bench.gpu import shapes, wide
from reference_engine.backend import Segment
from reference_engine.torch_backend.layout import Shape
from reference_engine.torch_backend.loading import Sizes
from reference_engine.torch_backend.model import TorchModel

PAIR = Path(reference_engine.__file__).resolve().parents[1] / "pair"
TARGETS = {"8B": shapes.CONFIGS["8B"], "70B/24": shapes.CUT_70B}
LENGTHS = (1, 2, 4, 6, 7)
REPEATS = 20


def write(module: Any, pair: Path, folder: Path) -> None:
    """A widened module of the checkpoint `pair` as a checkpoint of its own, with its tokenizer and special tokens."""
    generation = GenerationConfig.from_pretrained(pair)
    small = json.loads((pair / "config.json").read_text())
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(module.config, name, small[name])
    module.generation_config = generation
    module.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (pair / name).exists():  # a draft needs no template
            shutil.copy(pair / name, folder / name)


def steps(model: TorchModel, role: str, streams: list[int], context: int) -> dict[str, float]:
    """GPU ms of the passes that rounds are made of, at a context, by "role streams tokens"."""
    made = {}
    for rows in streams:
        for count in [1, *(k + 1 for k in LENGTHS)] if role == "target" else [1]:
            segments = [Segment(slot, context, np.full(count, 5, np.int32), count) for slot in range(rows)]
            model.forward(segments)
            torch.cuda.synchronize()
            graph = model._runs[Shape.of(segments)].graph
            made[f"{role} {rows} {count}"] = shapes.seconds(graph.replay, REPEATS) * 1e3
    return made


def make(role: str, options: argparse.Namespace, per_second: float) -> dict[str, Any]:
    """One model: written while its passes are timed."""
    config: LlamaConfig = TARGETS[options.target] if role == "target" else shapes.CONFIGS["1B"]
    started = time.perf_counter()
    module = wide.module(PAIR / role, config, shapes.random_module)
    write(module, PAIR / role, options.out / role)
    print(f"{role}: written after {time.perf_counter() - started:.1f} s", flush=True)
    longest = options.context + 64
    model, size = shapes.load(config, Sizes(max(options.streams), longest, 1024), module)
    made = steps(model, role, options.streams, options.context)
    print(f"{role}: {made}; {time.perf_counter() - started:.1f} s in all", flush=True)
    return {"steps_ms": made, "bound_ms": {role: size.weights / per_second * 1e3}}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.checkpoints", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=TARGETS, default="8B")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--context", type=int, default=464, help="tokens in the KV cache of a timed pass")
    options = parser.parse_args()
    per_second = shapes.bandwidth()
    figures: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "triton")},
        "bandwidth": per_second,
        "context_of_steps": options.context,
        "steps_ms": {},
        "bound_ms": {},
    }
    for role in ("target", "draft"):
        made = make(role, options, per_second)
        for name, values in made.items():
            figures[name] |= values
        torch.cuda.empty_cache()
    (options.out / "steps.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
