"""Write the logits and greedy continuations of transformers' own Llama, for other engines to agree with.

golden.npz holds for each model M (target, draft) and prompt number I: "prompt_I" int32 [length],
"M_logits_I" float32 [POSITIONS, vocabulary] (the prompt's last positions) and "M_greedy_I" int32
[up to NEW_TOKENS] (it ends early with the end-of-text token 0). CPU, float32, eager attention.
"""

import argparse
import json
import platform
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

POSITIONS = 2
NEW_TOKENS = 64
LONG_PROMPT = 300
TEXTS = (
    "import os",
    "def fibonacci(n):\n    ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    'def greet(name: str) -> str:\n    """Grüße, 你好 and 🙂: text beyond ASCII."""\n    return',
)


def prompts(pair: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens of TEXTS and of one long prompt made of the pair's own prompts."""
    lines = (pair / "prompts.jsonl").read_text().splitlines()
    long_text = "\n".join(json.loads(line)["prompt"] for line in lines[:8])
    return [tokenizer.encode(text).ids for text in TEXTS] + [tokenizer.encode(long_text).ids[:LONG_PROMPT]]


@torch.no_grad()
def greedy(model: LlamaForCausalLM, ids: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the prompt's last logits, the greedy tokens, and the smallest lead of a choice over the next."""
    logits = model(input_ids=ids, use_cache=False).logits[0, -POSITIONS:]
    tokens, lead = ids, float("inf")
    while tokens.shape[1] < ids.shape[1] + NEW_TOKENS:
        last = model(input_ids=tokens, use_cache=False).logits[0, -1]
        best = last.topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens = torch.cat([tokens, best.indices[None, :1]], 1)
        if tokens[0, -1] == 0:
            break
    return logits, tokens[0, ids.shape[1] :], lead


def main() -> None:
    """Write golden.npz and golden.json (versions and the smallest lead of each greedy text)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/, draft/, prompts.jsonl")
    pair = parser.parse_args().pair
    arrays, leads = {}, {}
    tokenized = prompts(pair, Tokenizer.from_file(str(pair / "target" / "tokenizer.json")))
    for name in ("target", "draft"):
        model = LlamaForCausalLM.from_pretrained(pair / name, dtype=torch.float32, attn_implementation="eager")
        for number, ids in enumerate(tokenized):
            logits, tokens, lead = greedy(model.eval(), torch.tensor([ids]))
            arrays[f"prompt_{number}"] = np.array(ids, np.int32)
            arrays[f"{name}_logits_{number}"] = logits.numpy()
            arrays[f"{name}_greedy_{number}"] = tokens.numpy().astype(np.int32)
            leads[f"{name}_greedy_{number}"] = round(lead, 5)
    np.savez_compressed(pair / "golden.npz", **arrays)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    about = versions | {"attention": "eager", "dtype": "float32", "smallest_lead_of_a_choice": leads}
    (pair / "golden.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
