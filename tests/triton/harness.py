"""The real Triton server, from the nvidia-pytriton wheel, as a process of the test's own.

Every server has free ports, its own shared-memory names and its own process group; `stop` ends what
`start` made and nothing else, and a killed test run takes its servers along (parent-death signal).
"""

import contextlib
import fcntl
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from cluster.ports import free_port
from triton.pulse import PULSE

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
PYTHON_PATH = (REPOSITORY_ROOT / "images/reference", REPOSITORY_ROOT / "images/serving")
sys.path += [str(each) for each in PYTHON_PATH if str(each) not in sys.path]  # not only pytest starts servers

from tandem_serving.boot import processes, shared_memory  # noqa: E402

PREFIX = "tandem-"
"""Of the names of our servers' shared memory."""
FAULTS = Path(__file__).with_name("faults")
START_SECONDS = 900.0
HUNG_SECONDS = 60.0
"""Without a line in the log while it starts, and nearly without work: now and then Triton never notices that a model
is loaded."""
IDLE = 0.06
"""Of a processor. vLLM takes a few hundredths while it waits, and logs nothing for minutes while it is imported."""
STOP_SECONDS = 30.0
LOG_TAIL_LINES = 60
START_TRIES = 4
HUNG = "its log is silent"
ABORTED = "boost::interprocess::lock_exception"
"""Once in six times Triton takes a model's process for dead, and aborts, that gets no processor for 1.5 s while it
loads; later it does now and then. A container would start again, and so does a test: see again.py."""
UNHEALTHY = re.compile("Stub process '[^']+' is not healthy")
"""What it says where it does not abort, but kills that process, or crashes."""


class ServerError(RuntimeError):
    """The server did not start, or died; the message ends with the tail of its log."""


@dataclass(frozen=True)
class Ports:
    """Ports of one server."""

    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True)
class Options:
    """What a test may set: environment on top of the process's own, server arguments at the end.

    `faults`: a folder by whose files the reference engine fails; see faults/engine_faults.py. `packages`: the models'
    site-packages, where they are not this Python's. `alone`: it starts while no other does.
    """

    env: Mapping[str, str]
    arguments: Sequence[str] = ()
    thread_pool_size: int = 128
    faults: Path | None = None
    packages: Path | None = None
    alone: bool = True

    @classmethod
    def default(cls) -> "Options":
        """No extra environment, no extra arguments."""
        return cls(env={})


class TritonServer:
    """One tritonserver process on a model repository.

    Use as a context manager, or `start` and `stop`. Left with an exception, it prints the tail of its log.
    Thread-safe: no.
    """

    running: ClassVar[set["TritonServer"]] = set()
    """Those between `start` and `stop`."""
    gave_up: ClassVar[list[str]] = []
    """What proves it of servers of which a model was given up, and that were stopped since."""

    def __init__(self, repository: Path, options: Options | None = None) -> None:
        self.repository = repository
        self.ports = Ports(0, 0, 0)
        self._options = options or Options.default()
        self.shm_prefix = f"{PREFIX}{uuid.uuid4().hex}-"
        self._home = Path("/nonexistent")
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_at = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(f"--- tritonserver log (tail) ---\n{self.tail()}", file=sys.stderr)
        self.stop()

    @property
    def grpc_url(self) -> str:
        """`host:port` for tritonclient.grpc."""
        return f"127.0.0.1:{self.ports.grpc}"

    @property
    def http_url(self) -> str:
        """`http://host:port`."""
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def log(self) -> str:
        """Everything that the server and its models wrote so far."""
        path = self._home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        """Process id of tritonserver. Raises ServerError before `start` and after `stop`."""
        if self._process is None:
            raise ServerError("the server is not running: call start() first")
        return self._process.pid

    @property
    def given_up(self) -> str:
        """What proves that Triton took a model's process for dead that only stood still; empty: nothing does.

        By its log alone where it aborts. Else that process may have died by itself: where ours stood still, too,
        that is not why.
        """
        if not (self._process and self._ready_at):
            return ""
        still = PULSE.stood_still(self._ready_at)
        for line in self.log.splitlines():
            if ABORTED in line and self._ends() in (-signal.SIGABRT, 128 + signal.SIGABRT):
                return line.strip()
            if still and UNHEALTHY.search(line):
                return f"{line.strip()}; the machine stood still for {still:.1f} s"
        return ""

    def _ends(self) -> int | None:
        """Its exit code, for which it is waited: it says first that it aborts."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_SECONDS)
        return None

    def start(self) -> None:
        """Start and wait until every model is ready, mostly one server at a time: what they load keeps all processors
        busy.

        Raises ServerError.
        """
        for left in reversed(range(START_TRIES)):
            try:
                with _starting() if self._options.alone else contextlib.nullcontext():
                    self._start()
                break
            except ServerError as error:
                if not left or not (ABORTED in str(error) or HUNG in str(error)):
                    raise

    def _start(self) -> None:
        shared_memory.clear([f"{shared_memory.OPTION}{PREFIX}"])  # of test runs that were killed
        self.running.add(self)
        self._ready_at = 0.0
        if not self.ports.grpc:  # started again, it has its own: an endpoint before it knows them
            self.ports = Ports(free_port(), free_port(), free_port())
        self._home = Path(tempfile.mkdtemp(prefix="tandem-triton-"))
        backends = _assemble_backends(self._home)
        faults = self._options.faults
        more = {**self._options.env, **({"ENGINE_FAULTS": str(faults)} if faults else {})}
        environment = _environment(_assemble_python(self._home, self._options), more)
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_die_with_parent(), *self._command(backends)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        self._ready_at = time.monotonic()

    def stop(self) -> None:
        """End the server's process group, remove its files and shared memory. Idempotent."""
        if why := self.given_up:
            self.gave_up.append(why)
        self.running.discard(self)
        process, self._process = self._process, None
        if process is not None:
            _end_group(process)
        for region in Path("/dev/shm").glob(f"{self.shm_prefix}*"):
            region.unlink(missing_ok=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def metrics(self) -> str:
        """The Prometheus text of the metrics port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports.metrics}/metrics", timeout=240) as reply:
            text: bytes = reply.read()
        return text.decode()

    def ready(self) -> bool:
        """Whether Triton's readiness answers 200."""
        try:
            with urllib.request.urlopen(f"{self.http_url}/v2/health/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:  # refused, 4xx and 5xx, timed out
            return False

    def _tells_metrics(self) -> bool:
        """That port is opened last, when the server has been ready for a moment."""
        try:
            self.metrics()
        except OSError:
            return False
        return True

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.splitlines()[-lines:])

    def _command(self, backends: Path) -> list[str]:
        ports = self.ports
        return [
            str(_wheel() / "bin/tritonserver"),
            f"--model-repository={self.repository}",
            f"--backend-directory={backends}",
            f"--cache-directory={_wheel() / 'caches'}",
            "--disable-auto-complete-config",
            "--model-control-mode=none",
            f"--backend-config=python,thread-pool-size={self._options.thread_pool_size}",
            f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}",
            *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
            f"--http-port={ports.http}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-port={ports.metrics}",
            "--allow-gpu-metrics=false",
            "--exit-timeout-secs=10",
            *self._options.arguments,
        ]

    def _wait_ready(self) -> None:
        assert self._process is not None
        now = grown = time.monotonic()
        deadline, size, used = now + START_SECONDS, 0, 0.0
        while not (self.ready() and self._tells_metrics()):
            code, now = self._process.poll(), time.monotonic()
            if code is not None:
                raise ServerError(f"tritonserver exited with {code} before it was ready:\n{self.tail()}")
            if now > deadline:
                raise ServerError(f"tritonserver was not ready in {START_SECONDS:.0f} s:\n{self.tail()}")
            if len(log := self.log) > size:
                grown, size, used = now, len(log), _cpu_seconds(self._process.pid)
            elif now - grown > HUNG_SECONDS:
                before, used = used, _cpu_seconds(self._process.pid)
                if used - before < IDLE * (now - grown):
                    raise ServerError(
                        f"tritonserver is not ready, and {HUNG} for {now - grown:.0f} s:\n{self.tail()}"
                    )
                grown = now
            time.sleep(0.1)


def _cpu_seconds(pid: int) -> float:
    """What a process and those that it has started have used."""
    stats = (processes.read(each, "stat") for each in processes.family(pid))
    ticks = [stat.rpartition(b")")[2].split()[11:13] for stat in stats if stat]
    return sum(int(user) + int(system) for user, system in ticks) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Only one process of all has this at a time."""
    with (Path(tempfile.gettempdir()) / "tandem-triton.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wheel() -> Path:
    """Folder of the server inside the installed wheel."""
    distribution = importlib.metadata.distribution("nvidia-pytriton")
    return Path(str(distribution.locate_file("pytriton/tritonserver")))


def _assemble_backends(home: Path) -> Path:
    """A backend directory with the Python backend and the stub of the running Python.

    The wheel keeps one stub per Python version beside the backend; Triton looks for it inside.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = _wheel() / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise ServerError(f"the nvidia-pytriton wheel has no stub for Python {version}: use Python 3.8-3.12")
    folder = home / "backends/python"
    folder.mkdir(parents=True, exist_ok=True)
    for source in [stub, *(_wheel() / "backends/python").iterdir()]:
        link = folder / source.name
        if source.name != "__pycache__" and not link.exists():
            link.symlink_to(source)
    return folder.parent


def _assemble_python(home: Path, options: Options) -> Path:
    """A virtual environment that adds the images' packages to this Python's, and engine_faults.py to have faults;
    its `bin`.

    The stub's embedded interpreter ignores PYTHONPATH: it takes its prefix from the `python3` that PATH
    finds first, as it does in the image.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site, binaries = home / "venv/lib" / version / "site-packages", home / "venv/bin"
    site.mkdir(parents=True)
    binaries.mkdir()
    (binaries / "python3").symlink_to(Path(sys.executable).resolve())
    (home / "venv/pyvenv.cfg").write_text(f"home = {sysconfig.get_config_var('BINDIR')}\n")
    paths = [*PYTHON_PATH, options.packages or sysconfig.get_path("purelib")]
    (site / "images.pth").write_text("\n".join(map(str, paths)) + "\n")
    for file in FAULTS.glob("*engine_faults.p*") if options.faults else ():
        (site / file.name).symlink_to(file)
    return binaries


def _environment(binaries: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The stub needs libpython, and finds its packages by PATH."""
    libraries = [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "PATH": f"{binaries}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }


def _die_with_parent() -> list[str]:
    """Command prefix by which a killed test run takes the server along (util-linux; else nothing)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL for whatever of the process group is left."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
