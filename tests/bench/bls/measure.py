"""One point of the benchmark: the real Triton with stub engines, the client in its own process, CPU apart."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from bench.bls import client, stub
from bench.bls.client import Load, Result
from bench.bls.in_flight import Costs, Pair, StepLimits
from bench.bls.stub import Meter, Stub
from triton import bls_client
from triton.harness import Options, TritonServer

_COUNTERS = ("nv_inference_request_success", "nv_inference_count")
HERE = Path(__file__).parent
CLOCKS = "clocks.json"
MAX_SEQ_LEN = 1 << 17
ROLES = {"tensorrt_llm": "target", "tensorrt_llm_draft": "draft"}


@dataclass(frozen=True)
class Setup:
    """A server's setup: engines, acceptance (several: sequences differ), BLS parameters of config.pbtxt.

    `model`: the folder here of the model in the BLS's place; "": the BLS. `rounds`: the server makes whole rounds by
    itself.
    """

    pair: Pair
    acceptance: tuple[float, ...] = (0.8,)
    max_draft_len: int = 8
    parameters: tuple[tuple[str, str], ...] = ()
    model: Literal["", "bare_bls", "clocked_bls"] = ""
    rounds: bool = True


@dataclass(frozen=True)
class Point:
    """A client's result with the CPU seconds of its window by process, and the BLS's largest memory (bytes).

    By engine: `calls` in the window, `rows` (sequences) in them, and the share of the window spent in steps. Of a BLS
    with clocks: CPU seconds and calls of its `stages`.
    """

    result: Result
    cpu: dict[str, float]
    rss: int
    calls: dict[str, int]
    rows: dict[str, int]
    busy: dict[str, float]
    stages: dict[str, tuple[float, int]] = field(default_factory=dict)

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
    stages: dict[str, tuple[float, int]]


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
        self._triton, self._bls = psutil.Process(server.pid), _bls(server)
        self._meters = {role: Meter(_meter(program.parent, role)) for role in ROLES.values()}
        self._clocks = program.parent / CLOCKS

    def run(self, load: Load, profile: Profile | None = None) -> Point:
        """Play a load. Raises LoadError."""
        samples: list[_Sample] = []

        def at_window() -> None:
            samples.append(self._sample())
            if profile and len(samples) == 1:
                profile.start(self._bls.pid)

        result = client.run(self._program, self._server.grpc_url, load, at_window)
        if profile:
            profile.wait()
        first, last = samples
        return Point(
            result,
            {name: last.cpu[name] - first.cpu[name] for name in first.cpu} | {"client": result.cpu},
            _peak_rss(self._bls.pid),
            {role: last.calls[role] - first.calls[role] for role in ROLES.values()},
            {role: last.rows[role] - first.rows[role] for role in ROLES.values()},
            {role: (last.busy[role] - first.busy[role]) / result.seconds for role in ROLES.values()},
            {
                stage: (seconds - first.stages[stage][0], calls - first.stages[stage][1])
                for stage, (seconds, calls) in last.stages.items()
            },
        )

    def _sample(self) -> "_Sample":
        text = self._server.metrics()
        calls, rows = ({role: _counter(text, name, model) for model, role in ROLES.items()} for name in _COUNTERS)
        engines, all_of_it = _engine_seconds(self._triton), sum(self._triton.cpu_times()[:2])
        bls = sum(self._bls.cpu_times()[:2])
        cpu = {"bls": bls, "engines": engines, "server": all_of_it - engines}
        busy = {role: meter.read()[0] for role, meter in self._meters.items()}
        return _Sample(cpu, calls, rows, busy, json.loads(self._clocks.read_text()) if self._clocks.exists() else {})


@contextmanager
def serve(setup: Setup) -> Iterator[Bench]:
    """Start Triton with this setup."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = client.build(folder)
        with TritonServer(repository(folder, setup), _options(setup)) as server:
            yield Bench(server, program)


def _options(setup: Setup) -> Options:
    """The Python backend's threads as the operator counts them for engines of that batch size."""
    return Options(env={}, thread_pool_size=2 * max(64, setup.pair.target_limits.rows or 0) + 32)


def repository(folder: Path, setup: Setup) -> Path:
    """A model repository in `folder`/models: the real BLS, or the bare one, with stub engines."""
    models = folder / "models"
    models.mkdir()
    batch = max(64, setup.pair.target_limits.rows or 0)
    engines = {"rounds": setup.rounds, "max_batch_size": batch}
    bls_client.repository(models, "stub", max_draft_len=setup.max_draft_len, **engines)
    folders = {f"{role}_model_path": str(_engine_folder(folder, role, setup)) for role in ROLES.values()}
    set_parameters(models / "speculative_bls/config.pbtxt", folders | dict(setup.parameters))
    if setup.model:
        version = models / "speculative_bls/1"  # a link
        version.unlink()
        version.symlink_to(HERE / setup.model)
    if setup.model == "clocked_bls":
        set_parameters(models / "speculative_bls/config.pbtxt", {"clocks": str(folder / CLOCKS)})
    device = folder / "device" if setup.pair.shared else None
    library = stub.build()
    for name, role in ROLES.items():
        costs: Costs = getattr(setup.pair, role)
        limits: StepLimits = getattr(setup.pair, f"{role}_limits")
        made = Stub(role, costs, setup.acceptance, _meter(folder, role), device, decoupled=True, limits=limits)
        stub.install(models, stub.behind(name), made, library)
        stub.collect(models, name)
    return models


def _engine_folder(folder: Path, role: str, setup: Setup) -> Path:
    """An engine's folder, with what the BLS reads of it: how it was built."""
    limits: StepLimits = getattr(setup.pair, f"{role}_limits")
    vocabulary = json.loads((bls_client.PAIR / role / "config.json").read_text())["vocab_size"]
    built = {"max_seq_len": MAX_SEQ_LEN, "max_num_tokens": limits.tokens}
    engine = folder / f"{role}_engine"
    engine.mkdir()
    config = {"build_config": built, "pretrained_config": {"vocab_size": vocabulary}}
    (engine / "config.json").write_text(json.dumps(config))
    return engine


def _meter(folder: Path, role: str) -> Path:
    return folder / f"{role}.meter"


def set_parameters(config: Path, values: dict[str, str]) -> None:
    """Set string parameters, whether the configuration has them already or not."""
    text = config.read_text()
    for key, value in values.items():
        text = re.sub(rf'parameters {{ key: "{key}" .*\n?', "", text)
        text += f'\nparameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    config.write_text(text)


def _bls(server: TritonServer) -> psutil.Process:
    """The process of the BLS, a child of the server's."""
    for child in psutil.Process(server.pid).children(recursive=True):
        if any(word.endswith("speculative_bls/1/model.py") for word in child.cmdline()):
            return child
    raise client.LoadError("the server has no process of the BLS: see its log")


def _engine_seconds(server: psutil.Process) -> float:
    """CPU seconds of the stub engines' threads, which are the server's and named by the stub."""
    return sum(
        thread.user_time + thread.system_time
        for thread in server.threads()
        if Path(f"/proc/{server.pid}/task/{thread.id}/comm").read_text().startswith("stub-")
    )


def _peak_rss(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _counter(text: str, name: str, model: str) -> int:
    """The value of one of Triton's counters for an engine."""
    found = re.search(rf'^{name}{{model="{stub.behind(model)}",.*}} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0
