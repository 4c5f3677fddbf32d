"""The server's pod without Kubernetes: our entry point as its process."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tandem_serving.boot.launch import PLAN
from triton.harness import REPOSITORY_ROOT, TritonServer

ENTRYPOINT = REPOSITORY_ROOT / "images/serving/entrypoint.py"
DRAIN_SECONDS = 60


class Pod(TritonServer):
    """The server below the entry point, as in a pod."""

    def _command(self, backends: Path) -> list[str]:
        """The entry point assembles its own repository; the plan's command has ours."""
        folder = self.repository.parent / "revision"
        folder.mkdir(exist_ok=True)
        plan = {
            "models": {"none": {"config": "none"}},
            "server": {"command": super()._command(backends)},
            "drain": {"port": self.ports.metrics, "seconds": DRAIN_SECONDS},
        }
        (folder / "none").touch()
        (folder / PLAN).write_text(json.dumps(plan))
        command = [sys.executable, str(ENTRYPOINT), "serve", "--revision", str(folder)]
        command += ["--termination-log", str(self.termination_log)]
        return [*command, "--models", str(self.repository.parent / "assembled")]

    @property
    def termination_log(self) -> Path:
        """What the kubelet mounts at /dev/termination-log."""
        path = self.repository.parent / "termination-log"
        path.touch()
        return path

    def code(self) -> int | None:
        """Exit code of the entry point; None while it runs."""
        assert isinstance(self._process, subprocess.Popen)
        return self._process.poll()

    def terminate(self) -> None:
        """What the kubelet does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)


def ended(pod: Pod, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while pod.code() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return pod.code()
