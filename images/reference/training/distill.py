"""Train drafts to say what the target says: on real text and on the target's own continuations.

Loss per token: 0.9 x KL(target || draft) + 0.1 x cross entropy of the next token (Hinton et al., 2015).
Every second batch is the target's own continuations of training text (three quarters greedy, one quarter
sampled), because that is the text on which a draft is asked at work. All drafts share the target's passes.
"""

import argparse
import itertools
import time
from copy import deepcopy
from pathlib import Path

import torch
from model import CONTEXT, DRAFTS, Log, Optimizer, Windows, build, config_of, export, held_out_loss, load
from prepare import VOCABULARY
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

BATCH_TOKENS = 65_536
LENGTH = 384
PROMPTS = (32, 64, 128, 256)
GENERATED_BATCH = 4096


@torch.no_grad()
def continuations(target: LlamaForCausalLM, data: Path, batches: int) -> Tensor:
    """Return int64 [batches x GENERATED_BATCH, LENGTH + 1]: training text, continued by the target."""
    found = []
    start = time.monotonic()
    copy = deepcopy(target).bfloat16()  # halves the cache's traffic
    for number, prompt in zip(range(batches), itertools.cycle(PROMPTS), strict=False):
        ids = Windows(data / "train.npy", prompt - 1, seed=1000 + number).draw(GENERATED_BATCH)
        sampled = number // len(PROMPTS) % 4 == 3
        new = LENGTH + 1 - prompt
        ids = copy.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=sampled,
            min_new_tokens=new,
            max_new_tokens=new,
        )
        found.append(ids.short())
        print(f"continuations {number + 1}/{batches} {time.monotonic() - start:.0f} s", flush=True)
    return torch.cat(found).long()


def distillation_loss(draft: nn.Module, ids: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and the share of positions where the draft's first choice is the target's.

    ids: int64 [batch, length + 1]; teacher: the target's logits, [batch, length, vocabulary].
    """
    with torch.autocast("cuda", torch.bfloat16):
        logits = draft(input_ids=ids[:, :-1], use_cache=False).logits
    logits = logits.float().flatten(0, 1)
    teacher = teacher.float().flatten(0, 1)
    guess = functional.log_softmax(logits, -1)
    divergence = functional.kl_div(guess, functional.log_softmax(teacher, -1), log_target=True, reduction="batchmean")
    loss = 0.9 * divergence + 0.1 * functional.nll_loss(guess, ids[:, 1:].flatten())
    return loss, (logits.argmax(-1) == teacher.argmax(-1)).float().mean()


def batches(data: Path, own: Tensor) -> itertools.chain[Tensor]:
    """Yield without end, by turns, windows of real text and the target's own continuations."""
    windows = Windows(data / "train.npy", CONTEXT, seed=1)
    generator = torch.Generator().manual_seed(1)
    while True:
        yield windows.draw(BATCH_TOKENS // CONTEXT)
        yield own[torch.randint(len(own), (BATCH_TOKENS // LENGTH,), generator=generator)]


def distill(
    target: nn.Module, drafts: dict[str, nn.Module], source: itertools.chain[Tensor], steps: int, log: Log
) -> None:
    """Train all drafts on the same batches."""
    optimizers = {name: Optimizer(draft, 4e-3, steps) for name, draft in drafts.items()}
    teacher = torch.compile(target, dynamic=False)
    students = {name: torch.compile(draft, dynamic=False) for name, draft in drafts.items()}
    step_of = torch.compile(distillation_loss, dynamic=False)
    for step, ids in zip(range(steps), source, strict=False):
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            logits = teacher(input_ids=ids[:, :-1], use_cache=False).logits
        row = []
        for name, student in students.items():
            loss, agreement = step_of(student, ids, logits)
            loss.backward()
            optimizers[name].step(step)
            row += [loss, agreement]
        if step % 100 < 2 or step >= steps - 2:
            log.row(step, step % 2, *(value.item() for value in row))


def main() -> None:
    """Train the drafts named and write their checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of prepare.py")
    parser.add_argument("--output", type=Path, required=True, help="folder that holds target/")
    parser.add_argument("--drafts", nargs="+", choices=DRAFTS, default=["3x128"])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--generated", type=int, default=32, help="batches of continuations")
    arguments = parser.parse_args()
    target = load(arguments.output / "target")
    own = continuations(target, arguments.data, arguments.generated)
    drafts = {name: build(DRAFTS[name], VOCABULARY) for name in arguments.drafts}
    columns = [f"{kind}_{name}" for name in drafts for kind in ("loss", "agreement")]
    log = Log(arguments.output / "drafts.csv", ["step", "own_text", *columns])
    distill(target, drafts, batches(arguments.data, own), arguments.steps, log)
    for name, draft in drafts.items():
        size = sum(p.numel() for p in draft.parameters())
        loss = held_out_loss(draft.eval(), arguments.data / "heldout-file.npy")
        print(f"draft {name}: {size / 1e6:.2f} M parameters, held-out loss {loss:.4f}", flush=True)
        export(draft, config_of(DRAFTS[name], VOCABULARY), arguments.data, arguments.output / f"draft-{name}")


if __name__ == "__main__":
    main()
