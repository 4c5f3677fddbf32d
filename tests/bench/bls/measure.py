"""One point of the benchmark: the real Triton with stub engines, the client in its own process, CPU apart."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jinja2
import psutil

from bench.bls import client
from bench.bls.client import Load, Result
from bench.bls.device import Meter
from bench.bls.in_flight import Costs, Pair
from triton import bls_client
from triton.harness import TritonServer

_COUNTERS = ("nv_inference_request_success", "nv_inference_count")
HERE = Path(__file__).parent
ROLES = {"tensorrt_llm": "target", "tensorrt_llm_draft": "draft"}


@dataclass(frozen=True)
class Setup:
    """A server's setup: engines, acceptance (several: sequences differ), BLS parameters of config.pbtxt.

    `bare`: the model of bare_bls in the BLS's place.
    """

    pair: Pair
    acceptance: tuple[float, ...] = (0.8,)
    max_draft_len: int = 8
    parameters: tuple[tuple[str, str], ...] = ()
    bare: bool = False


@dataclass(frozen=True)
class Point:
    """A client's result with the CPU seconds of its window by process, and the BLS's largest memory (bytes).

    By engine: `calls` in the window, `rows` (sequences) in them, and the share of the window spent in steps.
    """

    result: Result
    cpu: dict[str, float]
    rss: int
    calls: dict[str, int]
    rows: dict[str, int]
    busy: dict[str, float]

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.result.tokens / self.result.seconds

    def per_chunk(self, process: str) -> float:
        """CPU seconds of a process per step and sequence."""
        return self.cpu[process] / max(1, self.result.chunks)


@dataclass(frozen=True)
class _Sample:
    """What counts up: CPU seconds by process; engine calls, their rows, and seconds in steps."""

    cpu: dict[str, float]
    calls: dict[str, int]
    rows: dict[str, int]
    busy: dict[str, float]


class Profile:
    """A profile of a process by py-spy (`pip install py-spy`), of `seconds`; it costs CPU itself.

    `path`: stacks and their counts for *.txt, else a flame graph (SVG).
    """

    def __init__(self, path: Path, seconds: float) -> None:
        kind = "raw" if path.suffix == ".txt" else "flamegraph"
        self._arguments = ["--duration", str(int(seconds)), "--output", str(path), "--format", kind]
        self._arguments += ["--rate", "500", "--nonblocking"]

    def start(self, pid: int) -> None:
        """Begin. Raises LoadError."""
        program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if program is None:
            raise client.LoadError("py-spy is not installed: pip install py-spy")
        self._process = subprocess.Popen([program, "record", "--pid", str(pid), *self._arguments])

    def wait(self) -> None:
        """Wait until it is written."""
        self._process.wait()


class Bench:
    """A running server; `run` measures points on it."""

    def __init__(self, server: TritonServer, program: Path) -> None:
        """`program`: the load's, from `client.build`, in the folder where the meters are."""
        self._server = server
        self._program = program
        self._processes = _processes(server)
        self._meters = {role: Meter(_meter(program.parent, role)) for role in ROLES.values()}

    def run(self, load: Load, profile: Profile | None = None) -> Point:
        """Play a load. Raises LoadError."""
        samples: list[_Sample] = []

        def at_window() -> None:
            samples.append(self._sample())
            if profile and len(samples) == 1:
                profile.start(self._processes["bls"].pid)

        result = client.run(self._program, self._server.grpc_url, load, at_window)
        if profile:
            profile.wait()
        first, last = samples
        return Point(
            result,
            {name: last.cpu[name] - first.cpu[name] for name in first.cpu} | {"client": result.cpu},
            _peak_rss(self._processes["bls"].pid),
            {role: last.calls[role] - first.calls[role] for role in ROLES.values()},
            {role: last.rows[role] - first.rows[role] for role in ROLES.values()},
            {role: (last.busy[role] - first.busy[role]) / result.seconds for role in ROLES.values()},
        )

    def _sample(self) -> "_Sample":
        text = self._server.metrics()
        calls, rows = ({role: _counter(text, name, model) for model, role in ROLES.items()} for name in _COUNTERS)
        cpu = {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}
        return _Sample(cpu, calls, rows, {role: meter.read()[0] for role, meter in self._meters.items()})


@contextmanager
def serve(setup: Setup) -> Iterator[Bench]:
    """Start Triton with this setup."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = client.build(folder)
        with TritonServer(repository(folder, setup)) as server:
            yield Bench(server, program)


def repository(folder: Path, setup: Setup) -> Path:
    """A model repository in `folder`/models: the real BLS, or the bare one, with stub engines."""
    models = folder / "models"
    models.mkdir()
    bls_client.repository(models, "stub", max_draft_len=setup.max_draft_len)
    _set_parameters(models / "speculative_bls/config.pbtxt", dict(setup.parameters))
    if setup.bare:
        version = models / "speculative_bls/1"  # a link
        version.unlink()
        version.symlink_to(HERE / "bare_bls")
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
            "meter": _meter(folder, role),
        }
        version = models / name / "1"
        version.mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(template.render(name=name, parameters=given))
        (version / "model.py").symlink_to(HERE / "stub_engine/model.py")
        (version / "bench").symlink_to(HERE.parent)  # Triton puts the folder on the model's path
    return models


def _meter(folder: Path, role: str) -> str:
    return str(folder / f"{role}.meter")


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


def _counter(text: str, name: str, model: str) -> int:
    """The value of one of Triton's counters for a model."""
    found = re.search(rf'^{name}{{model="{model}",.*}} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0
