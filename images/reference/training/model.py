"""What training the target and training the draft share: shapes, data, optimizer, export."""

import csv
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 2048
SEED = 0


class Shape(NamedTuple):
    """A Llama's shape; the heads are `head_dim` wide."""

    layers: int
    width: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int = 64


TARGET = Shape(layers=12, width=256, intermediate=576, heads=4, kv_heads=2)
DRAFTS = {
    "2x128": Shape(layers=2, width=128, intermediate=512, heads=2, kv_heads=1),
    "2x160": Shape(layers=2, width=160, intermediate=448, heads=4, kv_heads=2, head_dim=32),
    "3x128": Shape(layers=3, width=128, intermediate=384, heads=2, kv_heads=1),
    "2x192": Shape(layers=2, width=192, intermediate=384, heads=3, kv_heads=1),
}


def config_of(shape: Shape, vocabulary: int) -> dict[str, Any]:
    """Return the model's config.json (transformers' Llama, weights in float16)."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "torch_dtype": "float16",
    }


def build(shape: Shape, vocabulary: int) -> LlamaForCausalLM:
    """Return a new model on the GPU, float32, from the fixed seed."""
    torch.manual_seed(SEED)
    values = config_of(shape, vocabulary) | {"torch_dtype": "float32"}
    # Padding would freeze the embedding of the end-of-text token, which is an ordinary one here.
    config = LlamaConfig(**(values | {"pad_token_id": None}), attn_implementation="sdpa")
    return LlamaForCausalLM(config).cuda().train()


def export(model: nn.Module, config: dict[str, Any], tokenizer: Path, folder: Path) -> None:
    """Write the checkpoint: float16 weights, without the output layer, which is the embedding.

    Raises:
        OverflowError: a weight is too large for float16.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().half().cpu().contiguous() for k, v in model.state_dict().items()}
    state.pop("lm_head.weight", None)
    if not all(torch.isfinite(v).all() for v in state.values()):
        raise OverflowError("a weight is beyond float16: export another dtype")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"do_sample": False, "eos_token_id": 0, "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokenizer / name).read_bytes())


def load(folder: Path, device: str = "cuda") -> LlamaForCausalLM:
    """Load a checkpoint with transformers, weights upcast to float32."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device).eval()


class Windows:
    """Random windows of `length` + 1 tokens of a token array, drawn on the GPU."""

    def __init__(self, path: Path, length: int, seed: int = SEED) -> None:
        self.tokens = torch.from_numpy(np.load(path).astype(np.int32)).cuda()
        self.offsets = torch.arange(length + 1, device="cuda")
        self.generator = torch.Generator("cuda").manual_seed(seed)

    def draw(self, count: int) -> Tensor:
        """Return int64 [count, length + 1]."""
        last = len(self.tokens) - len(self.offsets)
        starts = torch.randint(last, (count, 1), generator=self.generator, device="cuda")
        return self.tokens[starts + self.offsets].long()


class Optimizer:
    """Muon for the matrices inside the layers, AdamW for embedding and norms; linear decay to zero."""

    def __init__(self, model: nn.Module, rate: float, steps: int, warmup: int = 200) -> None:
        inner = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers" in n]
        outer = [p for n, p in model.named_parameters() if p.ndim < 2 or "layers" not in n]
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(inner, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(outer, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.rate, self.steps, self.warmup = rate, steps, warmup
        self.parameters = [*inner, *outer]

    def step(self, step: int) -> None:
        """Apply the gradients of step number `step` (from 0) and clear them."""
        rate = self.rate * min((step + 1) / self.warmup, 1 - step / self.steps)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)


@torch.no_grad()
def held_out_loss(model: nn.Module, path: Path, windows: int = 128) -> float:
    """Return the mean loss per token (nats) over evenly spread windows of CONTEXT tokens of `path`."""
    tokens = torch.from_numpy(np.load(path).astype(np.int64))
    starts = torch.linspace(0, len(tokens) - CONTEXT - 1, windows).long()
    total = 0.0
    for batch in starts.split(16):
        ids = torch.stack([tokens[s : s + CONTEXT + 1] for s in batch]).cuda()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float()
        total += functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item() * len(batch)
    return total / windows


class Log:
    """Appends rows to a CSV file and prints them with the time since the start."""

    def __init__(self, path: Path, columns: list[str]) -> None:
        self.path, self.columns, self.start = path, ["seconds", *columns], time.monotonic()
        with path.open("w") as file:
            csv.writer(file, lineterminator="\n").writerow(self.columns)

    def row(self, *values: float) -> None:
        """Write one row; `values` in the order of the columns, the time is added."""
        cells = [f"{time.monotonic() - self.start:.1f}", *(f"{v:.5g}" for v in values)]
        with self.path.open("a") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)
        print(" ".join(f"{c}={v}" for c, v in zip(self.columns, cells, strict=True)), flush=True)
