"""What engines that speculate must answer: greedy tokens of the target alone, and `tandem conformance`."""

import json
import subprocess
import sys
import time
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


@pytest.fixture(scope="module")
def greedy() -> list[list[int]]:
    """Greedy tokens of the prompts by the target alone, in this process."""
    runner = reference.Engine(reference.load(reference.Settings(PAIR / "target")))
    outputs: list[list[Output]] = [[] for _ in TEXTS]
    for prompt, answers in zip(TEXTS, outputs, strict=True):
        request = Request(
            np.array(TOKENIZER.encode(prompt).ids, np.int32), TOKENS, end_id=0, sampling=SamplingParams()
        )
        runner.submit(request, answers.append)
    deadline = time.monotonic() + 300
    while not all(outputs):
        assert time.monotonic() < deadline, "the target alone is too slow"
        time.sleep(0.05)
    runner.close()
    return [answers[0].tokens for answers in outputs]


def conformance(report: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the report's cases by their names."""
    command = [sys.executable, "-m", "tandem", "conformance", *SHORT, "--report", str(report), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {case["case"]: case for case in json.loads(report.read_text())["cases"]}
