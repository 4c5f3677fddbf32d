"""Several ranks under mpirun: who gets a signal, and that no rank outlives the others.

The server is a stand-in of tritonserver's behaviour: it says its rank, takes a second to finish its requests at
SIGTERM, and a rank other than the first ends with its leader. mpirun is Open MPI's where the machine has it, and
always also a stand-in that does what Open MPI's does with SIGTERM and with ranks that die.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem_serving.boot import ranks

SERVING = Path(__file__).parents[4] / "images" / "serving"
SERVER = f"""#!{sys.executable}
import os, pathlib, signal, sys, time
rank, folder = int(os.environ["OMPI_COMM_WORLD_RANK"]), pathlib.Path(os.environ["FOLDER"])
def drain(*_):
    print(f"rank {{rank}} drains", flush=True)
    time.sleep(3)
    (folder / "gone").touch()
    print(f"rank {{rank}} drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
print(f"rank {{rank}} runs {{sys.argv[1:]}}", flush=True)
(folder / f"{{rank}}.pid").write_text(str(os.getpid()))
while not (rank and (folder / "gone").exists()):
    time.sleep(0.05)
print(f"rank {{rank}} ends with its leader", flush=True)
"""
STAND_IN = f"""#!{sys.executable}
import contextlib, os, signal, subprocess, sys
words, ranks = sys.argv[1:], []
while words and words[0].startswith("--"):
    words = words[2 if words[0] == "--bind-to" else 1:]
contexts = [[]]
for word in words:
    contexts.append([]) if word == ":" else contexts[-1].append(word)
commands = []
for option, number, *command in contexts:
    assert option == "-n"
    commands += [command] * int(number)
for rank in reversed(range(len(commands))):  # in any order: the first child need not be the first rank
    environment = dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank))
    ranks.append(subprocess.Popen(commands[rank], env=environment))
def end(*_):
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank.pid, signal.SIGKILL)
signal.signal(signal.SIGTERM, end)
codes = []
for _ in ranks:
    _, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    codes.append(code if code >= 0 else 128 - code)
    if code:
        end()
sys.exit(next((code for code in codes if code), 0))
"""


@pytest.fixture(params=["stand-in", "Open MPI"])
def mpirun(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command before the ranks."""
    if request.param == "stand-in":
        return [script(tmp_path, "mpirun", STAND_IN)]
    found = shutil.which("mpirun")
    if found is None:
        pytest.skip("Open MPI is not installed: `make deps` does it")
    return [found, *(["--allow-run-as-root"] if os.getuid() == 0 else [])]


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class Launched:
    """The entry point with three ranks."""

    def __init__(self, folder: Path, mpirun: list[str]) -> None:
        server = script(folder, "tritonserver", SERVER)
        command = [*mpirun, "--bind-to", "none", "--oversubscribe", "-n", "1", server, "first"]
        command += [":", "-n", "2", server, "further"]
        (folder / "m.config.pbtxt").write_text("")
        plan = {
            "models": {"m": {"config": "m.config.pbtxt"}},
            "server": {"command": [*command, "--model-repository=x"]},
            "env": {"FOLDER": str(folder)},
        }
        (folder / "launch.json").write_text(json.dumps(plan))
        entrypoint = [sys.executable, str(SERVING / "entrypoint.py"), "serve", "--revision", str(folder)]
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*entrypoint, "--models", str(folder / "models")], stdout=log, stderr=log, start_new_session=True
            )

    def wait_for_ranks(self) -> list[int]:
        """Process ids of the ranks, by rank."""
        files = [self.folder / f"{rank}.pid" for rank in range(3)]
        deadline = time.monotonic() + 240
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return [int(file.read_text()) for file in files]

    def end(self) -> tuple[int, str]:
        """Exit code and all that was said."""
        code = self.process.wait(timeout=240)
        return code, self.log.read_text()


@pytest.fixture
def launched(tmp_path: Path, mpirun: list[str]) -> Iterator[Launched]:
    launched = Launched(tmp_path, mpirun)
    yield launched
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launched.process.pid, signal.SIGKILL)
    # Open MPI gives each rank a process group of its own.
    for pid in map(int, filter(None, (path.read_text() for path in tmp_path.glob("*.pid")))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    launched.process.wait(timeout=240)


def all_end(pids: list[int]) -> bool:
    """Whether none of them runs; Open MPI's need not have ended when it has."""
    deadline = time.monotonic() + 240
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(running, pids))


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_first_rank_finishes_its_requests_and_the_others_end_with_it(launched: Launched) -> None:
    pids = launched.wait_for_ranks()
    launched.process.send_signal(signal.SIGTERM)
    code, said = launched.end()
    assert "rank 0 drained" in said, "mpirun would have killed it after two seconds"
    assert "rank 1 drains" not in said
    assert "rank 2 ends with its leader" in said
    assert code == 0
    assert all_end(pids)


def test_when_a_rank_dies_all_end_and_the_code_says_so(launched: Launched) -> None:
    pids = launched.wait_for_ranks()
    os.kill(pids[1], signal.SIGKILL)
    code, _ = launched.end()
    assert code == 128 + signal.SIGKILL
    assert all_end(pids)


def test_other_commands_get_their_signals_themselves(tmp_path: Path) -> None:
    assert not ranks.is_launcher("/opt/tritonserver/bin/tritonserver")
    assert ranks.server(os.getpid()) == os.getpid(), "no rank below this process"


def test_a_script_between_mpirun_and_the_server(tmp_path: Path) -> None:
    script(tmp_path, "tritonserver", f"#!{sys.executable}\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n")
    between = f"import subprocess; subprocess.run([{str(tmp_path / 'tritonserver')!r}])"
    start = (
        "import os, subprocess, sys; subprocess.run(sys.argv[1:], env={**os.environ, 'OMPI_COMM_WORLD_RANK': '0'})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start, sys.executable, "-c", between], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        found = ranks.server(launcher.pid)
        assert Path(f"/proc/{found}/comm").read_text() == "tritonserver\n"
        os.kill(found, signal.SIGTERM)
