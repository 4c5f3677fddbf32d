"""The metrics server beside a cluster of simulated pods that tell figures: what tests of autoscalers share."""

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import binaries
from cluster.core import Cluster
from cluster.ports import free_port
from tandem.metrics_server.authentication import AUDIENCE

from .conftest import PATIENCE, STAGES, Namespace, wait_for
from .pages import STEP_SECONDS, Load, host_address, loopback_stage
from .release import Release

FAST_SERVER = {"replicas": 0, "intervalSeconds": 1, "windowSeconds": 4}
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 1}]}
AUTOSCALING = {
    "maxReplicas": 4,
    "objectives": {"queueLength": 2},
    "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
}


class Server:
    """`tandem metrics run` as a process of this host, with the rights and settings that the chart gives its pods."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release, self.folder, self.port, self.http = release, folder, free_port(), free_port()
        self.log = folder / "metrics.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        self.configure()
        self.launch()
        return self.wait_ready()

    def configure(self) -> None:
        """Write what the chart gives its pods."""
        name = f"{self.release.operator}-settings"
        config = self.release.cluster.kubectl.get("configmap", name, "-n", self.release.namespace)
        (self.folder / "settings.yaml").write_text(config["data"]["settings.yaml"], encoding="utf-8")
        self.release.kubeconfig_of("tandem-metrics", self.folder / "metrics.kubeconfig")

    def launch(self) -> None:
        command = [sys.executable, "-m", "tandem", "metrics", "run", "--log-format", "text"]
        command += ["--settings", str(self.folder / "settings.yaml")]
        command += ["--bind", f"127.0.0.1:{self.http}", "--secure-bind", f"0.0.0.0:{self.port}"]
        own = {"KUBECONFIG": str(self.folder / "metrics.kubeconfig"), "POD_NAMESPACE": self.release.namespace}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)

    def wait_ready(self) -> "Server":
        wait_for("the metrics server's /readyz", lambda: self.probe("/readyz").startswith("ok"), log=self.log)
        return self

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def probe(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError as error:
            return f"{error}"

    def shows(self) -> str:
        """The certificate that it serves with, PEM; empty while it serves nobody."""
        try:
            return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=5)
        except OSError:
            return ""

    def get(self, path: str, token: str = "", data: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """Ask directly, trusting the authority that the Secret tells. `data`: is posted."""
        context = ssl.create_default_context(cadata=held(self.release, "ca.crt"))
        context.check_hostname = False  # it is asked by address here; the API server asks by name
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def token(self, account: str, audience: str = AUDIENCE) -> str:
        """Of a ServiceAccount in the release's namespace; for the API server where the audience is empty."""
        asked = [f"--audience={audience}"] if audience else []
        return self.release.kubectl("create", "token", account, *asked).strip()


def held(release: Release, key: str) -> str:
    """What the Secret of the certificate holds, PEM; empty while there is none."""
    found = release.cluster.reader.get("secret", "tandem-metrics-certificate", release.namespace)
    return base64.b64decode(found["data"][key]).decode() if found else ""


@contextmanager
def telling_cluster(name: str, *namespaces: str, nodes: int = 2) -> Iterator[Cluster]:
    """A cluster of its own, whose simulated pods have addresses that this host answers (`pages.serving`)."""
    made = Cluster(name, say=print)
    made.down()
    made.folder.mkdir(parents=True)
    stages = Path(shutil.copytree(STAGES, made.folder / "stages"))
    shipped = binaries.ensure(["kwok"], print)["kwok"].parent
    (stages / "pod-ready.yaml").write_text(loopback_stage(shipped), encoding="utf-8")
    try:
        made.up([f"simulated:{nodes}"])
        for namespace in namespaces:
            made.kubectl.run("create", "namespace", namespace)
        yield made
    finally:
        made.down()


def behind_service(cluster: Cluster, namespace: str, service: str, port: int) -> None:
    """Lead a Service to `port` of this host, by an EndpointSlice made by hand: the API server asks at endpoints."""
    cluster.kubectl.run(
        "-n", namespace, "patch", "service", service, "--type=merge", "-p", '{"spec":{"selector":null}}'
    )
    of_service = f"kubernetes.io/service-name={service}"
    cluster.kubectl.run("-n", namespace, "delete", "endpointslices", "-l", of_service)
    add_endpoint(cluster, namespace, service, port, f"{service}-here")


def add_endpoint(cluster: Cluster, namespace: str, service: str, port: int, name: str) -> None:
    """Lead a Service to `port` of this host too, by an EndpointSlice of this name."""
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [host_address()], "conditions": {"ready": True}}],
    }
    cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(endpoints))


@contextmanager
def served(release: Release, folder: Path) -> Iterator[Server]:
    """The release's metrics server, where the API server finds it."""
    made = Server(release, folder)
    behind_service(release.cluster, release.namespace, "tandem-metrics", made.port)
    try:
        yield made.start()
        made.stop()
    finally:
        made.kill()


def replicas(team: Namespace) -> int:
    return int(team.get("sis", "svc")["spec"]["replicas"])


def scaling_active(team: Namespace) -> tuple[str, str]:
    """Status and message of the HPA's condition."""
    autoscalers = team.items("hpa")
    conditions = autoscalers[0].get("status", {}).get("conditions", []) if autoscalers else []
    return next(((c["status"], c["message"]) for c in conditions if c["type"] == "ScalingActive"), ("", ""))


def wait_scaling(team: Namespace, server: Server, status: str, words: str = "") -> None:
    """Wait until the HPA says that it scales, or (`False`) that it knows no figures; with these words in it."""

    def told() -> bool:
        now, message = scaling_active(team)
        return now == status and words in message

    wait_told(team, server, f"ScalingActive={status} {words}", told, 120)


def wait_replicas(team: Namespace, server: Server, enough: Callable[[int], bool]) -> None:
    """Wait until somebody wrote that many into /scale."""
    wait_told(team, server, "replicas", lambda: enough(replicas(team)), 180)


def wait_told(team: Namespace, server: Server, what: str, check: Callable[[], bool], seconds: float) -> None:
    """Wait; a failure tells what the HPA and the server say."""
    try:
        wait_for(what, check, seconds, server.log)
    except AssertionError as error:
        seen = server.get(f"/v1/services/{team.name}/svc", server.token("tandem-operator"))
        raise AssertionError(f"{error}\n{replicas(team)}: {scaling_active(team)}\n{json.dumps(seen)}") from error


def decision(team: Namespace, server: Server) -> dict[str, Any]:
    """What the server's report asks for, and why; empty while nothing is known."""
    _, report = server.get(f"/v1/services/{team.name}/svc", server.token("tandem-operator"))
    found: dict[str, Any] = report.get("decision") or {}
    return found


def collapse_acceptance(team: Namespace, load: Load, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
    """Have clients ask for as many tokens a second by drafts that are never accepted, and wait for more replicas.

    The service has no objectives, and at most 8 replicas. The server's decision before, and after.
    """
    # From above: the average of demand takes a rise of so few sequences for chance, and follows it for minutes.
    load.sequences, load.acceptance = 20, 0.9
    made = 6 * (1 + 2 * load.acceptance) / STEP_SECONDS
    wait_for("the rate of more", lambda: decision(team, server).get("value", 0.0) > 2 * made, log=server.log)
    load.sequences = 6

    def measured() -> dict[str, Any] | None:
        now = decision(team, server)
        known = now.get("capacityPerReplica") and 0.8 * made < now["value"] < 1.7 * made
        return now if known and now["desiredReplicas"] == replicas(team) else None

    before = wait_for("the rate, and what a replica can do", measured, log=server.log)
    load.sequences, load.acceptance = 6 * (1 + 2 * 0.9), 0.0
    wait_replicas(team, server, lambda count: count > before["desiredReplicas"])

    def known() -> dict[str, Any] | None:
        now = decision(team, server)
        return now if now.get("capacityPerReplica") else None

    # A report may be without it for a moment, as pods come.
    return before, wait_for("a decision", known, log=server.log)
