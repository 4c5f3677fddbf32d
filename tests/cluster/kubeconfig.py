"""Writing kubeconfigs, and calling kubectl with one."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import files, pki
from cluster.errors import ClusterError


@dataclass(frozen=True)
class Access:
    """Makes kubeconfigs for one cluster: its CA and its name in contexts."""

    authority: pki.Authority
    cluster: str

    def write(self, path: Path, server: str, identity: pki.Identity) -> Path:
        """Write a kubeconfig for ``identity`` at ``server`` (a URL) to ``path``; certificates are inside."""
        certificate, key = pki.issue(self.authority, f"client-{identity.user}", identity)
        user = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
        context = {"cluster": self.cluster, "user": identity.user}
        cluster = {"server": server, "certificate-authority-data": _encoded(self.authority.path)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.cluster, "cluster": cluster}],
            "users": [{"name": identity.user, "user": user}],
            "contexts": [{"name": self.cluster, "context": context}],
            "current-context": self.cluster,
        }
        files.write(path, yaml.safe_dump(content, sort_keys=False), mode=0o600)
        return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@dataclass(frozen=True)
class Kubectl:
    """The kubectl binary with the kubeconfig to use."""

    binary: Path
    kubeconfig: Path

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what `kubectl <arguments>` prints.

        Raises:
            ClusterError: with kubectl's own words when it fails.
        """
        command = [str(self.binary), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the object or list that `kubectl get <arguments> -o json` prints."""
        found = json.loads(self.run("get", *arguments, "-o", "json"))
        if not isinstance(found, dict):
            raise TypeError(f"kubectl get {arguments}: not an object")
        return found

    def works(self, *arguments: str) -> bool:
        """Tell whether `kubectl <arguments>` succeeds."""
        try:
            self.run(*arguments)
        except ClusterError:
            return False
        return True
