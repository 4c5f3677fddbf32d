"""The OpenAI endpoint as a process, in front of a server of the tests."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster.ports import free_port
from triton.harness import REPOSITORY_ROOT, TritonServer

if TYPE_CHECKING:
    import openai

ENTRYPOINT = REPOSITORY_ROOT / "images/serving/entrypoint.py"
NAME = "pair"
START_SECONDS = 240


class OpenAiEndpoint:
    """A context manager: from its start to its end."""

    def __init__(self, server: TritonServer, mode: str, tokenizer: Path, *options: str) -> None:
        self.port = free_port()
        self._command = [sys.executable, str(ENTRYPOINT), "openai", "--mode", mode, "--name", NAME]
        self._command += ["--port", str(self.port), "--triton-port", str(server.ports.grpc)]
        self._command += ["--metrics-port", str(server.ports.metrics)]
        self._command += ["--tokenizer", str(tokenizer), *options]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command)
        deadline = time.monotonic() + START_SECONDS
        while not self.healthy():
            assert self.process.poll() is None, "the endpoint ended"
            assert time.monotonic() < deadline, "the endpoint does not answer"
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none") -> "openai.OpenAI":
        """OpenAI's own client."""
        import openai  # where a benchmark runs it may be missing

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def healthy(self) -> bool:
        """Whether it answers, and Triton behind it."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False
