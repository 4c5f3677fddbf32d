"""A target split over GPUs next to the same on one: its passes, its texts, and what speculation makes of them.

Reads the checkpoints of `bench.gpu.checkpoints`. A process can lead one split model only, so each size has its own.
"""

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
import numpy as np
import torch

from bench.gpu import pair
from reference_engine.backend import Segment
from reference_engine.engine import Settings, load
from reference_engine.request import Request
from reference_engine.scheduler import Scheduler
from reference_engine.torch_backend.model import TorchModel
from reference_llm.llmapi import batch

ROWS = (1, 4, 16, 64)
TOKENS = (1, 5)
CONTEXT = 464
REPEATS = 3
PASSES = 50  # one after the other: the host is ahead of the GPU, whose time it is
LENGTHS = (4, 7)
EXACT_TEXTS = 10


def measure(folder: Path, gpus: tuple[int, ...]) -> dict[str, Any]:
    """Figures of the target on these GPUs, with the draft on the first."""
    started = time.perf_counter()
    target = _load(folder / "target", gpus)
    loaded = time.perf_counter() - started
    print(f"{len(gpus)} GPUs: loaded in {loaded:.1f} s", flush=True)
    figures: dict[str, Any] = {"gpus": len(gpus), "load_s": loaded, "passes_ms": _passes(target)}
    figures["texts"] = [_text(target, ids) for ids in pair.prompts()[:EXACT_TEXTS]]
    loads = pair._alone(target) + pair._in_rounds(target, _load(folder / "draft", gpus[:1]), lengths=LENGTHS)
    return {**figures, "loads": [asdict(each) for each in loads]}


def _load(folder: Path, gpus: tuple[int, ...]) -> Scheduler:
    return load(Settings(folder, pair.SIZES.slots, 1024, pair.SIZES.max_seq_len, 0, "torch", gpus))


def _passes(scheduler: Scheduler) -> dict[str, list[float]]:
    """Milliseconds of a pass, REPEATS times, by "rows tokens"."""
    model = cast(TorchModel, scheduler._model)
    made = {}
    for rows in ROWS:
        for tokens in TOKENS:
            ids = np.full(tokens, 5, np.int32)
            segments = [Segment(slot, CONTEXT, ids, tokens) for slot in range(rows)]
            made[f"{rows} {tokens}"] = [_pass_ms(model, segments) for _ in range(REPEATS)]
            print(f"{rows} x {tokens}: {statistics.median(made[f'{rows} {tokens}']):.3f} ms", flush=True)
    return made


def _pass_ms(model: TorchModel, segments: list[Segment]) -> float:
    model.forward(segments)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(PASSES):
        model.forward(segments)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / PASSES * 1e3


def _text(scheduler: Scheduler, ids: pair.Ids) -> dict[str, list[Any]]:
    """A greedy text, and the lead of each token's logit over the next."""
    [output] = batch.run(scheduler, [Request(ids, 64, logits=True)])
    highest = np.sort(np.partition(output.logits, -2)[:, -2:])
    return {"tokens": list(output.tokens), "leads": (highest[:, 1] - highest[:, 0]).tolist()}


def compare(whole: Mapping[str, Any], split: Mapping[str, Any]) -> dict[str, Any]:
    """Of two sizes' texts: how many are equal, and the leads where others first differ."""
    leads = []
    for one, other in zip(whole["texts"], split["texts"], strict=True):
        pairs = enumerate(zip(one["tokens"], other["tokens"], strict=True))
        leads += [one["leads"][at] for at in [next((i for i, (a, b) in pairs if a != b), None)] if at is not None]
    return {
        "equal": len(whole["texts"]) - len(leads),
        "of": len(whole["texts"]),
        "leads_at_first_differences": leads,
        "within_epsilon": all(lead <= pair.EPSILON for lead in leads),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.split", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of split-N.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2], help="GPUs of the target")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if len(options.sizes) > 1:
        for size in options.sizes:
            given = ["--checkpoints", str(options.checkpoints), "--out", str(options.out), "--sizes", str(size)]
            subprocess.run([sys.executable, "-m", "bench.gpu.split", *given], check=True)
        made = [json.loads((options.out / f"split-{size}.json").read_text()) for size in options.sizes]
        compared = {f"{each['gpus']} GPUs": compare(made[0], each) for each in made[1:]}
        print(json.dumps(compared), flush=True)
        (options.out / "split-texts.json").write_text(json.dumps(compared, indent=1) + "\n")
        return
    [size] = options.sizes
    about = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    about["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    about["transformers"] = importlib.metadata.version("transformers")
    figures = measure(options.checkpoints, tuple(range(size)))
    (options.out / f"split-{size}.json").write_text(json.dumps({**about, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
