"""Groups: addresses of the workers, files for mpirun, waiting, and a worker that ends with the leader's daemon."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tandem_serving.boot import mpi
from tandem_serving.boot.worker import SOCKET, sshd_config

SERVING = Path(__file__).parents[4] / "images" / "serving"
LEADER = {"LWS_LEADER_ADDRESS": "llama-server-1.llama-server.team-a", "LWS_GROUP_SIZE": "3"}


def test_workers_are_named_after_their_leader() -> None:
    assert mpi.workers(LEADER, 3) == [
        "llama-server-1-1.llama-server.team-a",
        "llama-server-1-2.llama-server.team-a",
    ]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "outside of a LeaderWorkerSet"),
        ({**LEADER, "LWS_GROUP_SIZE": "2"}, "a group of another size than the plan's"),
    ],
)
def test_no_leader(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(mpi.GroupError, match="it must run in the LeaderWorkerSet that was made for it"):
        mpi.workers(environment, 3)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A Secret as it is mounted: readable for the group."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "ssh-privatekey").write_text("private\n")
    (folder / "ssh-publickey").write_text("ssh-ed25519 AAAA\n")
    (folder / "ssh-privatekey").chmod(0o440)
    return folder


def test_what_the_leader_writes_for_mpirun(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "answers", lambda host: True)
    folder = tmp_path / "group"
    variables = mpi.prepare({"hosts": 3, "slots": 8}, LEADER, keys, folder)
    assert (folder / "hostfile").read_text() == (
        "localhost slots=8\n"
        "llama-server-1-1.llama-server.team-a slots=8\n"
        "llama-server-1-2.llama-server.team-a slots=8\n"
    )
    assert (folder / "known_hosts").read_text() == "tandem-group ssh-ed25519 AAAA\n"
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert variables["OMPI_MCA_plm_rsh_agent"] == f"ssh -F {folder}/ssh_config"
    assert "StrictHostKeyChecking yes" in (folder / "ssh_config").read_text()


def test_without_its_secret_a_pod_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(mpi.GroupError, match=r"Secret .* must be mounted"):
        mpi.write_key(tmp_path / "none", tmp_path / "group")


def test_the_leader_waits_for_all_and_says_for_whom(capsys: pytest.CaptureFixture[str]) -> None:
    now, up = [0.0], {"b": 25.0, "a": 3.0}

    def sleep(seconds: float) -> None:
        now[0] += seconds

    mpi.wait_for(["a", "b"], lambda host: now[0] >= up[host], sleep, lambda: now[0])
    assert now[0] == 25.0
    assert capsys.readouterr().out.splitlines() == ["waiting for a, b", "waiting for b", "waiting for b"]


def test_sshd_lets_one_user_with_one_key_do_one_thing(tmp_path: Path) -> None:
    lines = sshd_config(tmp_path, "triton-server", ["python3", "entrypoint.py", "session"]).splitlines()
    for line in (
        "AllowUsers triton-server",
        "AuthenticationMethods publickey",
        "DisableForwarding yes",
        "PermitTTY no",
        "ForceCommand python3 entrypoint.py session",
    ):
        assert line in lines


class Worker:
    """worker.run() in a process of its own, with a stand-in of sshd that does nothing."""

    def __init__(self, keys: Path, folder: Path) -> None:
        self.folder = folder / "group"
        stand_in = folder / "bin" / "sshd"
        stand_in.parent.mkdir()
        stand_in.write_text("#!/bin/sh\nexec sleep 600\n")
        stand_in.chmod(0o755)
        code = (
            "import sys; from pathlib import Path; from tandem_serving.boot import worker;"
            f" worker.login = lambda: 'me'; sys.exit(worker.run(Path({str(keys)!r}), Path({str(self.folder)!r})))"
        )
        environment = {**os.environ, "PYTHONPATH": str(SERVING), "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
        environment["OF_THE_CONTAINER"] = "yes"
        log = folder / "log"
        with log.open("w") as output:
            self.process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=output)
        # Its socket is there before it takes signals.
        self.wait(lambda: "waiting for the leader's ranks" in log.read_text())
        assert (self.folder / SOCKET).exists()

    @staticmethod
    def wait(check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not check():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def session(self, command: str) -> subprocess.Popen[str]:
        """What sshd starts for a connection."""
        return subprocess.Popen(
            [sys.executable, str(SERVING / "entrypoint.py"), "session", "--folder", str(self.folder)],
            env={"SSH_ORIGINAL_COMMAND": command},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def worker(keys: Path, tmp_path: Path) -> Iterator[Worker]:
    made = Worker(keys, tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def test_a_session_has_the_containers_environment(worker: Worker) -> None:
    out, _ = worker.session("echo $OF_THE_CONTAINER; sleep 0.1").communicate(timeout=240)
    assert out == "yes\n"


def test_a_worker_ends_with_the_leaders_daemon_though_its_connection_ended_before(
    worker: Worker, tmp_path: Path
) -> None:
    """Open MPI's daemon leaves the ssh connection that started it."""
    end = tmp_path / "end"
    worker.session(f"({until(end)}) >/dev/null 2>&1 &").communicate(timeout=240)
    time.sleep(0.5)
    assert worker.process.poll() is None
    end.touch()
    assert worker.process.wait(240) == 0


def until(file: Path) -> str:
    """A command that runs until the file is there, or nobody can want it any longer."""
    return f"for _ in $(seq 6000); do [ -e {file} ] && break; sleep 0.1; done"


def test_a_worker_that_is_told_to_stop_waits_for_the_leaders_daemon(worker: Worker, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with worker.session(f"echo up; {until(end)}") as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "up\n"
        worker.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert worker.process.poll() is None, "ranks may still be needed"
        end.touch()
        assert worker.process.wait(240) == 0
        assert daemon.wait(240) == 0


def test_a_worker_without_ranks_stops_at_once(worker: Worker) -> None:
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(240) == 0


def test_there_is_no_shell(worker: Worker) -> None:
    out, error = worker.session("").communicate(timeout=240)
    assert (out, error) == ("", "this sshd starts MPI's daemons alone: there is no shell\n")


def test_the_environment_travels_as_one_line(worker: Worker) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(worker.folder / SOCKET))
        with connection.makefile("rb") as stream:
            line = stream.readline()
    assert json.loads(line)["OF_THE_CONTAINER"] == "yes"
