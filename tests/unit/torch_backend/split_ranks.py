"""The processes of test_splitting: a rank of each model, and a leader on its own."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from reference_engine.backend import Segment
from reference_engine.engine import Engine, Settings, load
from reference_engine.request import Finish, Output, Request
from reference_engine.torch_backend import attention, loading, splitting
from reference_engine.torch_backend.loading import Sizes
from reference_engine.torch_backend.ranks import Alone
from reference_engine.torch_backend.splitting import Part
from unit.torch_backend.models import PAIR, VOCABULARY, stock


class Ranks(Alone):
    """Ranks that all get the same calls."""

    def __init__(self, size: int) -> None:
        self.size = size


def rank(index: int, ranks: int, kinds: list[str], folder: str) -> None:
    """Write each kind's logits, of a text in pieces by a model that is split, next to the whole model's."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/meeting", ranks)
    dist.init_process_group("gloo", store=store, rank=index, world_size=ranks)
    for kind in kinds:
        whole, split = _logits(kind, 0, 1), _logits(kind, index, ranks)
        np.savez(f"{folder}/{kind}-{index}.npz", whole=whole, split=split)
    dist.destroy_process_group()


def _logits(kind: str, index: int, ranks: int) -> Any:
    module = stock(kind)
    for name, each in module.named_parameters():
        if name.endswith(".bias"):  # transformers starts with zeros, of which twice is once
            torch.nn.init.normal_(each, std=0.2)
    module.set_attn_implementation(attention.NAME)
    if ranks > 1:
        splitting.cut(module, Part(index, ranks, "cpu"))
    model = loading.build(module, Sizes(3, 64, 128), compiled=False, ranks=Ranks(ranks))
    ids = np.random.default_rng(1).integers(3, VOCABULARY, 40).astype(np.int32)
    pieces = [(0, 33), (33, 1), (34, 6)]
    logits = [model.forward([Segment(0, start, ids[start : start + n], n)]).values[:n].clone() for start, n in pieces]
    return torch.cat(logits).numpy()


def lead(what: str, folder: Path) -> None:
    """Serve a checkpoint as rank 0 of two; prints what came."""
    torch.set_num_threads(1)
    sizes = {"max_num_sequences": 2, "max_seq_len": 400}
    engine = Engine(load(Settings(folder, **sizes, backend="torch", gpu_device_ids=(0, 1))))
    golden = np.load(PAIR / "golden.npz")
    prompt, expected = golden["prompt_2"], golden["target_greedy_2"][:12]
    if what == "text":
        draft = np.array([*expected[:3], expected[3] + 1], np.int32)
        print("GREEDY", _tokens(engine, Request(prompt, len(expected))))
        print("VERIFIED", _tokens(engine, Request(prompt, 5, draft_ids=draft)))
        print("COPIED", _tokens(engine, *[Request(prompt, len(expected))] * 2))
        print("EXPECTED", expected.tolist())
    else:
        print("READY", os.getpid(), flush=True)
        time.sleep(600)


def _tokens(engine: Engine, *requests: Request) -> list[int]:
    """Of requests at the same time; the last one's: it has a slot of its own, and copies what another has."""
    outputs: list[list[Output]] = [[] for _ in requests]
    engine.submit_all((request, made.append) for request, made in zip(requests, outputs, strict=True))
    while not all(made and made[-1].finish for made in outputs):
        time.sleep(0.01)
    last = outputs[-1][-1]
    assert last.finish != Finish.ERROR, last.error
    return last.tokens


if __name__ == "__main__":
    lead(sys.argv[1], Path(sys.argv[2]))
