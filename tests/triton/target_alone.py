"""What engines that speculate must answer: greedy tokens of the target alone, and `tandem conformance`."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from reference_engine import engine as reference
from reference_engine.request import Output, Request
from reference_engine.sampling import SamplingParams
from triton.bls_client import PAIR

TEXTS = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()[:8]]
TOKENIZER = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
TOKENS = 48
SHORT = ["--max-tokens", "12"]


@cache
def _answers() -> list[Output]:
    runner = reference.Engine(reference.load(reference.Settings(PAIR / "target")))
    outputs: list[list[Output]] = [[] for _ in TEXTS]
    for prompt, answers in zip(TEXTS, outputs, strict=True):
        request = Request(
            np.array(TOKENIZER.encode(prompt).ids, np.int32),
            TOKENS,
            end_id=0,
            sampling=SamplingParams(),
            log_probs=True,
        )
        runner.submit(request, answers.append)
    deadline = time.monotonic() + 300
    while not all(outputs):
        assert time.monotonic() < deadline, "the target alone is too slow"
        time.sleep(0.05)
    runner.close()
    return [answers[0] for answers in outputs]


@pytest.fixture(scope="module")
def alone() -> list[Output]:
    """Greedy answers to the prompts by the target alone, in this process; with log probabilities."""
    return _answers()


@pytest.fixture(scope="module")
def greedy() -> list[list[int]]:
    """Their tokens."""
    return [answer.tokens for answer in _answers()]


def conformance(report: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the report's cases by their names."""
    command = [sys.executable, "-m", "tandem", "conformance", *SHORT, "--report", str(report), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {case["case"]: case for case in json.loads(report.read_text())["cases"]}
