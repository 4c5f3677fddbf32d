"""Servers of the BLS for tests: by the reference engine or the stand-in, and how they take calls."""

import json
from collections.abc import Iterator
from typing import Any

from triton import bls_client as bls
from triton.harness import TritonServer

MAX_DRAFT = 8
DRAFT_TIMEOUT = 6.0
"""More than a machine stands still for now and then: a draft that is given up accepts nothing."""

PROMPTS = [json.loads(line) for line in (bls.PAIR / "prompts.jsonl").read_text().splitlines()]
TEXTS = [prompt["prompt"] for prompt in PROMPTS[:32]]
ENGINES = [("reference", 1), ("reference", 64), ("reference", 64, True), ("stand-in", 64)]


def serve(
    folder: Any, engine: str, rows: int, collects: bool = False, separate: bool | None = None
) -> Iterator[TritonServer]:
    """Where rows are collected, the engines are on devices of their own, unless `separate` says otherwise: cohorts
    alternate, few draft ahead."""
    limits = {"max_draft_len": MAX_DRAFT, "draft_timeout_seconds": DRAFT_TIMEOUT, "max_engine_rows": rows}
    separate = collects if separate is None else separate
    made = bls.repository(folder, engine, collects=collects, separate_devices=separate, **limits)
    with TritonServer(made) as server:
        yield server
