"""An installation of the chart in a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries
from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.ports import free_port
from support import images

from .conftest import PATIENCE, REPOSITORY

CHART = REPOSITORY / "charts" / "tandem"
GROUP = "serving.tandem.dev"
TIMES = {"resyncSeconds": 5, "lease": {"durationSeconds": 6, "renewSeconds": 1}, "revisionHistoryLimit": 0}
FAST = {**images.VALUES, **TIMES}
"""Values of the chart of this repository, with which tests wait less."""


@dataclass(frozen=True)
class Release:
    """An installation of the chart."""

    cluster: Cluster
    name: str
    namespace: str
    values: dict[str, Any] = field(default_factory=dict)

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        """`helm <arguments>` in the release's namespace; raises ClusterError with helm's words."""
        command = [str(binaries.ensure(["helm"], print)["helm"]), *arguments, "-n", self.namespace]
        command += ["--kubeconfig", str(self.cluster.kubeconfig), *(["-f", "-"] if values is not None else [])]
        done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"helm {arguments}: {done.stderr}")
        return done.stdout

    def install(self, chart: Path | str = CHART, *options: str) -> None:
        """Install or upgrade, and wait until the (simulated) pods are ready."""
        arguments = ("upgrade", "--install", self.name, str(chart), "--wait", "--timeout=240s", *options)
        self.helm(*arguments, values=self.values)

    @property
    def account(self) -> str:
        """The operator's ServiceAccount as a user."""
        return f"system:serviceaccount:{self.namespace}:{self.operator}"

    @property
    def operator(self) -> str:
        """Name of the operator's objects."""
        return f"{self.name}-operator"

    def kubectl(self, *arguments: str) -> str:
        """Kubectl in the release's namespace."""
        return self.cluster.kubectl.run("-n", self.namespace, *arguments)

    @contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        """The operator as a process with the rights and settings that the chart gives its pods."""
        config = self.cluster.kubectl.get("configmap", f"{self.operator}-settings", "-n", self.namespace)
        settings, log = folder / "settings.yaml", folder / "operator.log"
        settings.write_text(config["data"]["settings.yaml"], encoding="utf-8")
        command = [sys.executable, "-m", "tandem", "operator", "run", "--log-format", "text"]
        command += ["--bind", f"127.0.0.1:{free_port()}", "--settings", str(settings)]
        environment = {
            "KUBECONFIG": str(self.kubeconfig_of(self.operator, folder / "kubeconfig")),
            "POD_NAME": "a",
            "POD_NAMESPACE": self.namespace,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=os.environ | environment, stdout=output, stderr=output)
        try:
            yield
            process.terminate()
            assert process.wait(PATIENCE) == 0, log.read_text(encoding="utf-8")
        finally:
            process.kill()
            process.wait()

    def kubeconfig_of(self, account: str, path: Path) -> Path:
        """A kubeconfig at `path` with the rights of a ServiceAccount of the release."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": self.kubectl("create", "token", account).strip()}
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path


def used(entries: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(verb, resource.group) of requests; a patch that made its object needed the right to create, too."""
    found = set()
    for entry in entries:
        ref = entry.get("objectRef", {})
        name = "/".join(ref[key] for key in ("resource", "subresource") if key in ref)
        resource = ".".join(part for part in (name, ref.get("apiGroup", "")) if part)
        found.add((entry["verb"], resource))
        if entry.get("responseStatus", {}).get("code") == 201:
            found.add(("create", resource))
    return {(verb, resource) for verb, resource in found if resource}
