"""One point of the benchmark: the real Triton with stub engines, the client in its own process, CPU apart."""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jinja2
import psutil

from bench.bls.client import Load, Result
from bench.bls.in_flight import Costs, Pair
from triton import bls_client
from triton.harness import TritonServer

HERE = Path(__file__).parent
ROLES = {"tensorrt_llm": "target", "tensorrt_llm_draft": "draft"}
SLACK_SECONDS = 120.0  # what the client may take beyond its window


@dataclass(frozen=True)
class Setup:
    """A server's setup: engines, acceptance (several: sequences differ), BLS parameters of config.pbtxt."""

    pair: Pair
    acceptance: tuple[float, ...] = (0.8,)
    max_draft_len: int = 8
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Point:
    """A client's result with the CPU seconds of its window, by process, and the BLS's largest memory (bytes)."""

    result: Result
    cpu: dict[str, float]
    rss: int

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.result.tokens / self.result.seconds

    def per_chunk(self, process: str) -> float:
        """CPU seconds of a process per step and sequence."""
        return self.cpu[process] / max(1, self.result.chunks)


class Bench:
    """A running server; `run` measures points on it."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server
        self._processes = _processes(server)

    @property
    def bls_pid(self) -> int:
        """Process id of the speculative BLS, e.g. for a profiler."""
        return self._processes["bls"].pid

    def run(self, load: Load) -> Point:
        """Run a client. Raises CalledProcessError when it fails, with its message above."""
        command = [sys.executable, "-m", "bench.bls.client"]
        load = dataclasses.replace(load, url=self._server.grpc_url)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(json.dumps(dataclasses.asdict(load)))
            client.stdin.close()
            lines = iter(client.stdout.readline, "")
            next(lines, "")
            before = self._cpu()
            next(lines, "")
            after = self._cpu()
            result = next(lines, "")
        if client.returncode or not result:
            raise subprocess.CalledProcessError(client.returncode, command)
        outcome = Result(**json.loads(result))
        cpu = {name: after[name] - before[name] for name in before} | {"client": outcome.cpu}
        return Point(outcome, cpu, _peak_rss(self.bls_pid))

    def _cpu(self) -> dict[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}


@contextmanager
def serve(setup: Setup) -> Iterator[Bench]:
    """Start Triton with this setup."""
    with tempfile.TemporaryDirectory() as folder, TritonServer(repository(Path(folder), setup)) as server:
        yield Bench(server)


def repository(folder: Path, setup: Setup) -> Path:
    """A model repository in `folder`/models: the real BLS with stub engines."""
    models = folder / "models"
    models.mkdir()
    bls_client.repository(models, "stub", max_draft_len=setup.max_draft_len)
    _set_parameters(models / "speculative_bls/config.pbtxt", dict(setup.parameters))
    device = str(folder / "device") if setup.pair.shared else ""
    template = jinja2.Template(
        (HERE / "stub_engine/config.pbtxt.j2").read_text(), undefined=jinja2.StrictUndefined, autoescape=False
    )
    for name, role in ROLES.items():
        costs: Costs = getattr(setup.pair, role)
        given = {
            "role": role,
            "costs": json.dumps(dataclasses.asdict(costs)).replace('"', "'"),
            "acceptance": ",".join(map(str, setup.acceptance)),
            "device": device,
        }
        version = models / name / "1"
        version.mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(template.render(name=name, parameters=given))
        (version / "model.py").symlink_to(HERE / "stub_engine/model.py")
        (version / "bench").symlink_to(HERE.parent)  # Triton puts the folder on the model's path
    return models


def _set_parameters(config: Path, values: dict[str, str]) -> None:
    """Set string parameters, whether the configuration has them already or not."""
    text = config.read_text()
    for key, value in values.items():
        text = re.sub(rf'parameters {{ key: "{key}" .*\n?', "", text)
        text += f'\nparameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    config.write_text(text)


def _processes(server: TritonServer) -> dict[str, psutil.Process]:
    """The processes by role: server, bls, target, draft."""
    found = {"server": psutil.Process(server.pid)}
    folders = {"speculative_bls": "bls", **ROLES}
    for child in psutil.Process(server.pid).children(recursive=True):
        for word in child.cmdline():
            model = Path(word).parent.parent.name
            if word.endswith("1/model.py") and model in folders:
                found[folders[model]] = child
    return found


def _peak_rss(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
