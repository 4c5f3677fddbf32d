"""Train the target on the tokens of prepare.py; needs one CUDA GPU."""

import argparse
from pathlib import Path

import torch
from model import CONTEXT, TARGET, Log, Optimizer, Windows, build, config_of, export, held_out_loss
from prepare import VOCABULARY
from torch import Tensor, nn
from torch.nn import functional

BATCH = 32


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the mean next-token loss (nats) of int64 [batch, length + 1]."""
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def train(model: nn.Module, data: Path, steps: int, rate: float, log: Log) -> None:
    """Run `steps` steps of BATCH windows of CONTEXT tokens each."""
    windows = Windows(data / "train.npy", CONTEXT)
    optimizer = Optimizer(model, rate, steps)
    compiled = torch.compile(model)
    for step in range(steps):
        loss = loss_of(compiled, windows.draw(BATCH))
        loss.backward()
        optimizer.step(step)
        if step % 100 == 0 or step == steps - 1:
            log.row(step, step * BATCH * CONTEXT, loss.item())


def main() -> None:
    """Train, write the checkpoint in float16 and the float32 and float16 held-out losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of prepare.py")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=3e-3)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    model = build(TARGET, VOCABULARY)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    log = Log(arguments.output / "target.csv", ["step", "tokens", "loss"])
    train(model, arguments.data, arguments.steps, arguments.rate, log)
    export(model, config_of(TARGET, VOCABULARY), arguments.data, arguments.output / "target")
    for split in ("heldout-file", "heldout-package"):
        path = arguments.data / f"{split}.npy"
        exact = held_out_loss(model.eval(), path)
        rounded = held_out_loss(model.half().float(), path)
        print(f"{split}: loss {exact:.4f} in float32, {rounded:.4f} with weights rounded to float16", flush=True)


if __name__ == "__main__":
    main()
