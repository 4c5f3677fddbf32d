"""A server in the cluster that speaks the Hub's protocol, and the volume of the cache."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from .conftest import REPOSITORY, Site, wait_for

HUB = REPOSITORY / "tests/fetcher/hub_server.py"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Hub:
    """The server, in a pod that serves the pair of the reference image as models pair/target and pair/draft."""

    def __init__(self, site: Site, image: str) -> None:
        self.site = site
        site.run("create", "configmap", "hub", f"--from-file={HUB}")
        site.run("apply", "-f", "-", stdin=json.dumps(hub_service()))
        self.url = f"http://{site.run('get', 'service', 'hub', '-o', 'jsonpath={.spec.clusterIP}')}:8900"
        site.run("apply", "-f", "-", stdin=json.dumps(hub_pod(image, self.url)))
        site.run("wait", "pod/hub", "--for=condition=Ready", "--timeout=180s")
        wait_for("the hub to answer", self.answers)

    def answers(self) -> bool:
        try:
            self.sent()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def sent(self) -> dict[str, int]:
        """Bytes sent, by model and file."""
        with urllib.request.urlopen(f"{self.url}/_stats", timeout=30) as reply:
            found: dict[str, int] = json.load(reply)
        return found

    def fault(self, **faults: Any) -> None:
        request = urllib.request.Request(f"{self.url}/_faults", json.dumps(faults).encode(), method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def remove(self) -> None:
        self.site.run("delete", "pod/hub", "service/hub", "configmap/hub")

    def secret(self, name: str, token: str = "") -> None:
        """A Secret that sends downloads here."""
        keys = [f"--from-literal=HF_ENDPOINT={self.url}", *([f"--from-literal=HF_TOKEN={token}"] if token else [])]
        self.site.run("create", "secret", "generic", name, *keys)


def hub_service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hub"},
        "spec": {"selector": {"app": "hub"}, "ports": [{"port": 8900}]},
    }


def hub_pod(image: str, url: str) -> dict[str, Any]:
    command = ["python3", "/hub/hub_server.py", "--root", "/opt/reference", "--host", "0.0.0.0", "--cdn", url]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hub", "labels": {"app": "hub"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "hub",
                    "image": image,
                    "command": command,
                    "securityContext": RESTRICTED,
                    "volumeMounts": [{"name": "hub", "mountPath": "/hub"}],
                }
            ],
            "volumes": [{"name": "hub", "configMap": {"name": "hub"}}],
        },
    }


def volume(site: Site, folder: Path, namespace: str = "default") -> dict[str, Any]:
    """A volume of the one node, for the claim that Tandem makes in a namespace."""
    (node,) = [item["metadata"]["name"] for item in site.items("nodes")]
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "cache" if namespace == "default" else f"cache-{namespace}"},
        "spec": {
            "capacity": {"storage": "500Gi"},
            "accessModes": ["ReadWriteMany"],
            "claimRef": {"namespace": namespace, "name": "tandem-cache"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
    }
