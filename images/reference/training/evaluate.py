"""Measure how well a draft foretells its target on text held out of training.

The target continues each prompt greedily (float32); a draft token is accepted when it is the target's own
choice there, so one pass of the draft over the finished text tells what every round of draft-and-verify
would have accepted: greedy speculative decoding follows that very text (Leviathan et al., 2023).
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from model import load
from prepare import SPLITS
from prompts import cut_prompts, held_out
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

DRAFT_LENGTH = 4
NEW_TOKENS = 128
BATCH = 512


class Batch(NamedTuple):
    """Token ids padded on the left, int64 [prompts, length], and their mask (1: a token)."""

    ids: Tensor
    mask: Tensor


def padded(prompts: list[list[int]]) -> Batch:
    """Pad on the left to the longest prompt."""
    length = max(map(len, prompts))
    ids = torch.tensor([[0] * (length - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
    return Batch(ids.cuda(), mask.cuda())


def benchmark_prompts(path: Path) -> list[dict[str, Any]]:
    """Return the prompts of a HumanEval file."""
    with gzip.open(path, "rt") as file:
        return [{"prompt": json.loads(line)["prompt"]} for line in file]


@torch.no_grad()
def continued(target: LlamaForCausalLM, batch: Batch) -> Batch:
    """Append the target's greedy continuation; the mask is 0 after an end-of-text token."""
    ids = target.generate(batch.ids, attention_mask=batch.mask, do_sample=False, max_new_tokens=NEW_TOKENS)
    new = ids[:, batch.ids.shape[1] :]
    alive = ((new == 0).cumsum(1) - (new == 0).long()) == 0
    return Batch(ids, torch.cat([batch.mask, alive.long()], 1))


@torch.no_grad()
def matches(draft: LlamaForCausalLM, text: Batch, prompt_length: int) -> list[list[bool]]:
    """Tell for each generated token of each prompt whether the draft's first choice is the same."""
    positions = (text.mask.cumsum(1) - 1).clamp(min=0)
    logits = draft(input_ids=text.ids, attention_mask=text.mask, position_ids=positions, use_cache=False).logits
    same = logits[:, prompt_length - 1 : -1].argmax(-1) == text.ids[:, prompt_length:]
    alive = text.mask[:, prompt_length:].bool()
    return [row[keep].tolist() for row, keep in zip(same.cpu(), alive.cpu(), strict=True)]


def accepted(rows: list[list[bool]], draft_length: int) -> list[float]:
    """Return for each position 1..draft_length the share of target passes that accept that many tokens or more.

    Passes that could reach beyond the text's end are left out.
    """
    counts, passes = [0] * draft_length, 0
    for row in rows:
        at = 0
        while at + draft_length < len(row):
            run = next((i for i in range(draft_length) if not row[at + i]), draft_length)
            passes += 1
            for position in range(run):
                counts[position] += 1
            at += run + 1
    return [count / max(passes, 1) for count in counts]


def looping(text: Batch, prompt_length: int) -> list[bool]:
    """Tell of each continuation whether its last 32 tokens already stood earlier in it."""
    rows = [" ".join(map(str, row.tolist())) for row in text.ids[:, prompt_length:]]
    tails = [" " + " ".join(row.split()[-32:]) for row in rows]
    return [row.find(tail) < len(row) - len(tail) for row, tail in zip(rows, tails, strict=True)]


def summary(rows: list[list[bool]]) -> dict[str, Any]:
    """Return the mean accepted length (accepted tokens plus one) and the share of passes per position."""
    shares = accepted(rows, DRAFT_LENGTH)
    return {
        "mean_accepted_length": round(1 + sum(shares), 3),
        "per_position": [round(share, 3) for share in shares],
    }


def measure(target: LlamaForCausalLM, drafts: dict[str, LlamaForCausalLM], batches: list[Batch]) -> dict[str, Any]:
    """Return each draft's summary over all continuations and over those that do not end in a loop."""
    rows: dict[str, list[list[bool]]] = {name: [] for name in drafts}
    loops: list[bool] = []
    for batch in batches:
        text, length = continued(target, batch), batch.ids.shape[1]
        loops += looping(text, length)
        for name, draft in drafts.items():
            rows[name] += matches(draft, text, length)
    found: dict[str, Any] = {"looping": round(sum(loops) / len(loops), 3)}
    first = next(iter(rows.values()))
    found["mean_tokens"] = round(sum(map(len, first)) / len(first), 1)
    for name, every in rows.items():
        straight = [row for row, loop in zip(every, loops, strict=True) if not loop]
        found[name] = {"all": summary(every), "not_looping": summary(straight)}
    return found


def sets(arguments: argparse.Namespace, tokenizer: Tokenizer) -> dict[str, list[dict[str, Any]]]:
    """Return the prompts of each held-out split and of the benchmark."""
    documents = held_out(arguments.data)
    found = {split: cut_prompts(documents[split], tokenizer, arguments.count, 0) for split in SPLITS[1:]}
    if arguments.benchmark:
        found["humaneval"] = benchmark_prompts(arguments.benchmark)
    return found


def main() -> None:
    """Write results.json beside the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of prepare.py")
    parser.add_argument("--models", type=Path, required=True, help="folder with target/ and draft*/")
    parser.add_argument("--benchmark", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--count", type=int, default=400, help="prompts of each split")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer.json"))
    target = load(arguments.models / "target")
    drafts = {folder.name: load(folder) for folder in sorted(arguments.models.glob("draft*")) if folder.is_dir()}
    results = {}
    for name, prompts in sets(arguments, tokenizer).items():
        ids = [tokenizer.encode(p["prompt"]).ids for p in prompts]
        batches = [padded(ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)]
        results[name] = {"prompts": len(ids)} | measure(target, drafts, batches)
        print(name, json.dumps(results[name]), flush=True)
    (arguments.models / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
