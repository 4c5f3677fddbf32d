"""The fetcher as a process of its own, as in its pod, against local servers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fetcher.hub_server import HubServer

REPOSITORY = Path(__file__).parents[2]
MODEL = "acme/tiny"
WEIGHTS = 3_000_000
"""Bytes of each of the model's two weight files."""


@dataclass(frozen=True)
class Result:
    """How a fetcher ended: exit code, verdict, what it logged."""

    code: int
    verdict: dict[str, Any]
    log: str

    @property
    def check(self) -> dict[str, str]:
        """The one condition."""
        (check,) = self.verdict["checks"]
        return dict(check)

    @property
    def reason(self) -> str:
        return self.check["reason"]


@dataclass
class Fetcher:
    """Runs the fetcher on one cache folder, with only these variables in its environment."""

    work: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.work / "cache"

    def start(self, command: str, uri: str, *arguments: str) -> subprocess.Popen[str]:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.work),
            "HF_HOME": str(self.work / "home"),
            "PYTHONPATH": str(REPOSITORY / "images/fetcher"),
            **self.env,
        }
        place = ["--cache", str(self.cache), "--port", "0"] if command == "fetch" else []
        words = [sys.executable, "-m", "tandem_fetcher", command, "--uri", uri, *place, *arguments]
        return subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process: subprocess.Popen[str]) -> Result:
        out, log = process.communicate(timeout=240)
        assert out, log
        return Result(process.returncode, json.loads(out), log)

    def run(self, command: str, uri: str, *arguments: str) -> Result:
        return self.end(self.start(command, uri, *arguments))

    def fetch(self, uri: str = f"hf://{MODEL}", *arguments: str) -> Result:
        return self.run("fetch", uri, *arguments)

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def names(self, result: Result) -> list[str]:
        """Files of the fetched model, without the cache's own."""
        folder = self.cache / result.verdict["path"]
        paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return sorted(str(path) for path in paths if not path.parts[0].startswith("."))

    def cached_bytes(self) -> int:
        """Bytes of weights in the cache, on their way or arrived."""
        return sum(path.stat().st_size for path in self.cache.rglob("model-*-of-*"))

    def wait_for_bytes(self, count: float) -> None:
        """Wait until so many bytes of weights are in the cache."""
        deadline = time.monotonic() + 120
        while self.cached_bytes() <= count:
            assert time.monotonic() < deadline, f"{count} bytes are not there within 120 s"
            time.sleep(0.02)


def make_model(folder: Path) -> Path:
    """Write what a model repository holds: what serving needs, and what it must not get."""
    folder.mkdir(parents=True)
    content = random.Random(1).randbytes
    files = {
        "config.json": b'{"vocab_size": 300}',
        "tokenizer.json": b'{"model": {}}' + b" " * 100_000,
        "tokenizer_config.json": b"{}",
        "chat_template.jinja": b"{{ messages }}",
        "model.safetensors.index.json": b'{"weight_map": {}}',
        "model-00001-of-00002.safetensors": content(WEIGHTS),
        "model-00002-of-00002.safetensors": content(WEIGHTS),
        "consolidated.safetensors": content(100),
        "modeling_tiny.py": b"raise SystemExit",
        "README.md": b"# Tiny",
        ".gitattributes": b"*.safetensors filter=lfs",
        "onnx/config.json": b"{}",
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return folder


FETCHED = [
    "chat_template.jinja",
    "config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of the model's files."""
    return make_model(tmp_path / "hub" / MODEL)


@pytest.fixture
def hub(model: Path) -> Iterator[HubServer]:
    server = HubServer(model.parents[1]).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    return Fetcher(tmp_path)
