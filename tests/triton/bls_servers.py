"""Servers of the BLS for tests: by the reference engine or the stand-in, and how they take calls."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from triton import bls_client as bls
from triton.bls_client import stream
from triton.harness import TritonServer
from triton.stand_in import COUNT_CALLS, COUNT_HUNG, LET_GO
from triton.waits import eventually

MAX_DRAFT = 8
DRAFT_TIMEOUT = 6.0
"""More than a machine stands still for now and then: a draft that is given up accepts nothing."""

PROMPTS = [json.loads(line) for line in (bls.PAIR / "prompts.jsonl").read_text().splitlines()]
TEXTS = [prompt["prompt"] for prompt in PROMPTS[:32]]


def serve(folder: Any, engine: str, rows: int, separate: bool = False) -> Iterator[TritonServer]:
    """A server; `separate`: the engines are on devices of their own, so that two micro-batches may alternate."""
    limits = {"max_draft_len": MAX_DRAFT, "draft_timeout_seconds": DRAFT_TIMEOUT, "max_engine_rows": rows}
    made = bls.repository(folder, engine, separate_devices=separate, **limits)
    with TritonServer(made) as server:
        yield server


def ask_engine(server: TritonServer, question: int, name: str = "tensorrt_llm_engine", about: int = 1) -> int:
    """What the stand-in engine answers to a question, `about` a seed (stand_in.py)."""
    one = np.ones((1, 1), np.int32)
    tensors = {"input_ids": about * one, "input_lengths": one, "request_output_len": one}
    tensors["seed"] = np.array([[question]], np.uint64)
    return int(stream(server.grpc_url, tensors, name)[0]["output_ids"].item())


def calls_in_flight(server: TritonServer, name: str = "tensorrt_llm_engine") -> int:
    """Calls that an engine has now."""
    return ask_engine(server, COUNT_CALLS, name)


def hangs(server: TritonServer) -> None:
    """Wait until a call of the target has hung for a while."""
    eventually(lambda: ask_engine(server, COUNT_HUNG) == 1, "one hangs")


def let_go(server: TritonServer) -> None:
    """The calls of the target that hang go on as if they never had."""
    ask_engine(server, LET_GO)
