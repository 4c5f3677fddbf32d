"""Operators as processes: forked from one that has imported all, in milliseconds, so that two hundred plans are
minutes."""

import multiprocessing
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster.ports import free_port
from support.simulation.mutants import MUTANTS, mutated

from .proxy import kubeconfig

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tandem.cli", "tandem.process.operator", "support.simulation.mutants"])


def main(environment: dict[str, str], arguments: list[str], log: str, defect: str) -> None:
    """What the process does: `tandem` with these arguments; with a defect where one is named."""
    from kubernetes.aio.config import kube_config

    from tandem.cli import app

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environment["KUBECONFIG"]  # which is read when it is imported
    sys.argv = ["tandem", *arguments]
    with ExitStack() as stack:
        if defect:
            stack.enter_context(mutated(MUTANTS[defect]))
        app()


@dataclass
class OperatorProcess:
    """`tandem operator run`. It is started again when it ends, as a container is, unless it is to stay down."""

    folder: Path
    name: str
    settings: dict[str, Any]
    proxy_port: int
    defect: str = ""
    down: bool = True
    """Whether it is to stay down."""
    unexpected: list[str] = field(default_factory=list)
    """How it ended by itself."""
    port: int = field(default_factory=free_port)
    _process: Any = None
    _killed: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.name}.log"
        self._kubeconfig = kubeconfig(self.folder / f"{self.name}.kubeconfig", self.proxy_port)
        self._settings = self.folder / f"{self.name}.yaml"
        self._settings.write_text(yaml.safe_dump(self.settings))

    def start(self) -> None:
        """Start it, under the pod's name that it always has."""
        self.down = self._killed = False
        environment = {"KUBECONFIG": str(self._kubeconfig), "POD_NAME": self.name, "POD_NAMESPACE": "default"}
        arguments = ["operator", "run", "--log-format", "text", "--bind", f"127.0.0.1:{self.port}"]
        arguments += ["--settings", str(self._settings)]
        self._process = FORKED.Process(target=main, args=(environment, arguments, str(self.log), self.defect))
        self._process.daemon = True
        self._process.start()

    def supervise(self) -> None:
        """Start it again where it has ended; call it again and again."""
        if self.down or self._process is None or self._process.exitcode is None:
            return
        if not self._killed:
            self.unexpected.append(f"{self.name} ended with {self._process.exitcode}")
        self.start()

    def kill(self) -> None:
        """kill -9; it is started again."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def stay_down(self) -> None:
        """kill -9, until it is started."""
        self.down = True
        self.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        os.kill(self._process.pid, number)

    def text(self) -> str:
        """What it logged."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
