"""How often a greedy text depends on what runs at the same time, in bfloat16, and by what lead its token won there.

`python -m bench.gpu.same --checkpoints FOLDER --prompts HumanEval.jsonl.gz --out FILE` generates each prompt's text
by itself, in batches, and by speculation, with the checkpoints of `bench.gpu.checkpoints`. A text is compared up to
its first difference: after that the two continue from different tokens.
"""

import argparse
import gzip
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
import numpy as np
import tokenizers
import torch

from bench.gpu import pair
from reference_engine.backend import Segment
from reference_engine.engine import Settings, load
from reference_engine.request import Request
from reference_engine.scheduler import Scheduler
from reference_engine.torch_backend.model import TorchModel
from reference_llm.llmapi import batch

BATCHES = (4, 16, 17, 64)
SPECULATED = (1, 16)  # streams
DRAFT_LEN = 4
TIES = (0.03, 0.06, 0.125, 0.25)  # leads of the most likely token's logit over the next one's


def prompts(path: Path, count: int, longest: int) -> list[pair.Ids]:
    """Token ids of the file's first prompts."""
    tokenizer = tokenizers.Tokenizer.from_file(str(pair.PAIR / "target/tokenizer.json"))
    lines = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).splitlines()
    texts = [json.loads(line)["prompt"] for line in lines[:count]]
    return [np.array(tokenizer.encode(text).ids[-longest:], np.int32) for text in texts]


def texts(scheduler: Scheduler, given: Sequence[pair.Ids], size: int, tokens: int) -> list[list[int]]:
    """Greedy texts of so many prompts at a time."""
    made: list[list[int]] = []
    for first in range(0, len(given), size):
        requests = [Request(ids, tokens) for ids in given[first : first + size]]
        made += [list(each.tokens) for each in batch.run(scheduler, requests)]
    return made


def speculated(
    target: Scheduler, draft: Scheduler, given: Sequence[pair.Ids], size: int, tokens: int
) -> list[list[int]]:
    """The same by draft and verification, of so many prompts at a time."""
    runner = pair._speculator(target, draft, DRAFT_LEN)
    made: list[list[int]] = []
    for first in range(0, len(given), size):
        made += [each.tokens for each in pair._generate(runner, list(given[first : first + size]), tokens)]
    runner.close()
    return made


def leads(scheduler: Scheduler, ids: pair.Ids, tokens: Sequence[int]) -> list[float]:
    """By how much the logit of each of a text's tokens leads over the next one's. Overwrites a slot: comes last."""
    model = cast(TorchModel, scheduler._model)
    given = np.concatenate([ids, np.array(tokens[:-1], np.int32)])
    values = model.forward([Segment(0, 0, given, len(tokens))]).values[: len(tokens)]
    torch.cuda.synchronize()
    highest = values.topk(2).values
    return [float(each) for each in highest[:, 0] - highest[:, 1]]


def compare(alone: Sequence[Sequence[int]], made: Sequence[Sequence[int]], lead: list[list[float]]) -> dict[str, Any]:
    """How many texts differ, for each token compared, and the leads where they first do."""
    compared, at_difference = 0, []
    for index, (ours, others) in enumerate(zip(alone, made, strict=True)):
        at = next((i for i, (a, b) in enumerate(zip(ours, others, strict=True)) if a != b), None)
        compared += len(ours) if at is None else at + 1
        if at is not None:
            at_difference.append(lead[index][at])
    return {
        "texts": len(alone),
        "differ": len(at_difference),
        "tokens_compared": compared,
        "tokens_per_difference": compared / len(at_difference) if at_difference else None,
        "lead_median": statistics.median(at_difference) if at_difference else None,
        "lead_most": max(at_difference, default=None),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.same", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help='lines with a field "prompt", also gzipped')
    parser.add_argument("--count", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each text")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    given = prompts(options.prompts, options.count, 512)
    target, draft = (
        load(Settings(options.checkpoints / role, pair.SIZES.slots, 1024, pair.SIZES.max_seq_len, 0, "torch", (0,)))
        for role in ("target", "draft")
    )
    alone = texts(target, given, 1, options.tokens)
    made = {"alone again": texts(target, given, 1, options.tokens)}
    for size in BATCHES:
        made[f"{size} at once"] = texts(target, given, size, options.tokens)
    for size in SPECULATED:
        made[f"speculation, {size} at once"] = speculated(target, draft, given, size, options.tokens)
    lead = [leads(target, ids, tokens) for ids, tokens in zip(given, alone, strict=True)]
    every = [each for text in lead for each in text]
    found: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "near_ties": {str(tie): sum(each < tie for each in every) / len(every) for tie in TIES},
        **{name: compare(alone, each, lead) for name, each in made.items()},
    }
    for name, figures in found.items():
        print(f"{name}: {figures}", flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
