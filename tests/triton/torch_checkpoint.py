"""Random weights in the Hub's layout, and what transformers makes of them: run by a Python that has torch.

    python torch_checkpoint.py KIND FOLDER TOKENIZER PROMPT_IDS TOKENS

Writes FOLDER, several files of weights with their index and the tokenizer; prints the greedy token ids, as JSON, that
follow the prompt's ids (JSON). It imports nothing of the project: `triton` has another meaning in that Python.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "eos_token_id": 299,
}


def main(kind: str, folder: Path, tokenizer: Path, prompt: list[int], tokens: int) -> list[int]:
    """Write the checkpoint; the greedy tokens, in the type that the engine has on a CPU."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SHAPE, dtype="bfloat16")
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(
        folder, max_shard_size="100KB"
    )
    shutil.copy(tokenizer, folder / "tokenizer.json")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        made = model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False)
    found: list[int] = made[0, len(prompt) :].tolist()
    return found


if __name__ == "__main__":
    kind, folder, tokenizer, prompt, tokens = sys.argv[1:]
    print(json.dumps(main(kind, Path(folder), Path(tokenizer), json.loads(prompt), int(tokens))))
