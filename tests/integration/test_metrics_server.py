"""The metrics server behind the real API server and the real autoscaler: pods are simulated, their pages are not."""

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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster import binaries
from cluster.core import Cluster
from cluster.errors import ClusterError

from .conftest import STAGES, AuditLog, Namespace, free_port, wait_for
from .pages import Load, host_address, loopback_stage, serving
from .test_chart import FAST, GROUP, Release, used

APISERVICE = "v1beta2.custom.metrics.k8s.io"
METRIC = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-a/speculativeinferenceservices.{GROUP}"
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
        config = self.release.cluster.kubectl.get(
            "configmap", f"{self.release.operator}-settings", "-n", self.release.namespace
        )
        settings = self.folder / "settings.yaml"
        settings.write_text(config["data"]["settings.yaml"], encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "tandem",
            "metrics",
            "run",
            "--log-format",
            "text",
            "--settings",
            str(settings),
        ]
        command += ["--bind", f"127.0.0.1:{self.http}", "--secure-bind", f"0.0.0.0:{self.port}"]
        own = {
            "KUBECONFIG": str(self.release.kubeconfig_of("tandem-metrics", self.folder / "metrics.kubeconfig")),
            "POD_NAMESPACE": self.release.namespace,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
        wait_for("the metrics server's /readyz", lambda: self.probe("/readyz").startswith("ok"), 30, self.log)
        return self

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(20) == 0, self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def probe(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError as error:
            return f"{error}"

    def get(self, path: str, token: str = "") -> tuple[int, dict[str, Any]]:
        """Ask directly, trusting the authority that the Secret tells."""
        secret = self.release.cluster.kubectl.get(
            "secret", "tandem-metrics-certificate", "-n", self.release.namespace
        )
        context = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
        context.check_hostname = False  # it is asked by address here; the API server asks by name
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def token(self, account: str) -> str:
        """Of a ServiceAccount in the release's namespace."""
        return self.release.kubectl("create", "token", account).strip()


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The chart in a cluster of its own, whose simulated pods have addresses that this host answers."""
    made = Cluster("tandem-metrics", say=print)
    made.down()
    made.folder.mkdir(parents=True)
    stages = Path(shutil.copytree(STAGES, made.folder / "stages"))
    shipped = binaries.ensure(["kwok"], print)["kwok"].parent
    (stages / "pod-ready.yaml").write_text(loopback_stage(shipped), encoding="utf-8")
    made.up(["simulated:2"])
    for namespace in ("tandem-system", "team-a"):
        made.kubectl.run("create", "namespace", namespace)
    release = Release(made, "tandem", "tandem-system", {**FAST, "metricsServer": FAST_SERVER})
    release.install()
    yield release
    made.down()


@pytest.fixture(scope="module")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, where the API server finds it: behind its Service, by an EndpointSlice made by hand."""
    made = Server(release, tmp_path_factory.mktemp("metrics"))
    release.kubectl("patch", "service", "tandem-metrics", "--type=merge", "-p", '{"spec":{"selector":null}}')
    release.kubectl("delete", "endpointslices", "-l", "kubernetes.io/service-name=tandem-metrics")
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "tandem-metrics-here",
            "namespace": release.namespace,
            "labels": {"kubernetes.io/service-name": "tandem-metrics"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": made.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [host_address()], "conditions": {"ready": True}}],
    }
    release.cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(endpoints))
    try:
        yield made.start()
        made.stop()
    finally:
        made.kill()


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    """What the pods' pages say."""
    made = Load()
    with serving(made):
        yield made


@pytest.fixture(scope="module")
def operator(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExitStack]:
    """A running operator; closing this ends it."""
    with ExitStack() as running:
        running.enter_context(release.running(tmp_path_factory.mktemp("operator")))
        yield running


@pytest.fixture(scope="module")
def team(release: Release, server: Server, load: Load, operator: ExitStack) -> Namespace:
    """A service that asks for autoscaling, brought up by the operator."""
    made = Namespace(release.cluster, "team-a")
    made.apply(autoscaling=AUTOSCALING, serving={"maxBatchSize": load.batch})
    made.wait("Ready", "True", 60)
    return made


def replicas(team: Namespace) -> int:
    return int(team.get("sis", "svc")["spec"]["replicas"])


def scaling_active(team: Namespace) -> tuple[str, str]:
    """Status and message of the HPA's condition."""
    autoscalers = team.items("hpa")
    conditions = autoscalers[0].get("status", {}).get("conditions", []) if autoscalers else []
    return next(((c["status"], c["message"]) for c in conditions if c["type"] == "ScalingActive"), ("", ""))


def wait_scaling(team: Namespace, server: Server, status: str) -> None:
    """Wait until the HPA says that it scales, or (`False`) that it knows no figures."""
    wait_told(team, server, f"ScalingActive={status}", lambda: scaling_active(team)[0] == status, 60)


def wait_replicas(team: Namespace, server: Server, enough: Callable[[int], bool]) -> None:
    """Wait until somebody wrote that many into /scale."""
    wait_told(team, server, "replicas", lambda: enough(replicas(team)), 120)


def wait_told(team: Namespace, server: Server, what: str, check: Callable[[], bool], seconds: float) -> None:
    """Wait; a failure tells what the HPA and the server say."""
    try:
        wait_for(what, check, seconds, server.log)
    except AssertionError as error:
        seen = server.get("/v1/services/team-a/svc", server.token("tandem-operator"))
        raise AssertionError(f"{error}\n{replicas(team)}: {scaling_active(team)}\n{json.dumps(seen)}") from error


def available(release: Release) -> bool:
    return release.cluster.kubectl.works(
        "wait", "--for=condition=Available", f"apiservice/{APISERVICE}", "--timeout=1s"
    )


def test_the_api_server_trusts_it_and_shows_its_metrics(release: Release, server: Server) -> None:
    wait_for("the APIService to be available", lambda: available(release), 60, server.log)
    found = json.loads(release.cluster.kubectl.run("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2"))
    assert f"speculativeinferenceservices.{GROUP}/tandem_replicas_needed" in [r["name"] for r in found["resources"]]


def test_load_drives_replicas_up_and_down(team: Namespace, load: Load, server: Server) -> None:
    """By the real HPA, on our kind's /scale."""
    load.sequences = 2
    wait_scaling(team, server, "True")
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    wait_for("their pods to be read", lambda: len(load.pods) >= 3)
    value = json.loads(team.run("get", "--raw", f"{METRIC}/svc/tandem_acceptance_rate"))["items"][0]["value"]
    assert value == "800m", "people read the others through the API server"
    load.sequences = 1
    wait_replicas(team, server, lambda count: count == 1)


def test_acceptance_that_collapses_raises_replicas_at_constant_load(
    team: Namespace, load: Load, server: Server
) -> None:
    """Clients that send so many requests a second keep more in flight where each takes longer."""
    load.sequences, load.acceptance = 5, 0.9
    wait_scaling(team, server, "True")
    before = replicas(team)
    load.sequences, load.acceptance = 5 * (1 + 2 * 0.9), 0.0
    wait_replicas(team, server, lambda count: count > before)
    load.sequences, load.acceptance = 1, 0.8


def test_without_metrics_replicas_are_held(team: Namespace, load: Load, server: Server) -> None:
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    load.cut = True
    wait_scaling(team, server, "False")
    held = replicas(team)
    assert "is not known now" in scaling_active(team)[1]
    load.sequences = 1
    with pytest.raises(AssertionError, match="not within"):
        wait_for("a change", lambda: replicas(team) != held, 12)
    load.cut = False
    wait_scaling(team, server, "True")


DIRECT = [
    # why, ServiceAccount in tandem-system, path, status
    ("the operator reads all reports", "tandem-operator", "/v1/services", 200),
    ("and one", "tandem-operator", "/v1/services/team-a/svc", 200),
    ("not the autoscaler's metric", "tandem-operator", f"{METRIC}/svc/tandem_replicas_needed", 403),
    ("another account nothing", "default", "/v1/services", 403),
    ("nobody nothing", "", "/v1/services", 401),
]


@pytest.mark.parametrize(("account", "path", "status"), [d[1:] for d in DIRECT], ids=[d[0] for d in DIRECT])
def test_who_reads_what(team: Namespace, server: Server, account: str, path: str, status: int) -> None:
    token = server.token(account) if account else ""
    wait_for("reports", lambda: server.probe("/readyz").startswith("ok"))
    code, body = server.get(path, token)
    assert code == status, body


@contextmanager
def another_adapter(release: Release) -> Iterator[dict[str, Any]]:
    """An adapter of the older version, as others install it."""
    manifest = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "prometheus-adapter", "namespace": "monitoring", "port": 443},
        },
    }
    release.cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield manifest
    finally:
        release.cluster.kubectl.run("delete", "apiservice", "v1beta1.custom.metrics.k8s.io")


def test_another_adapter_is_left_alone_and_said(release: Release, server: Server, team: Namespace) -> None:
    with another_adapter(release) as manifest:
        with pytest.raises(ClusterError, match="belongs to Service monitoring/prometheus-adapter: another adapter"):
            release.install()
        wait_for("the server to notice", lambda: "monitoring/prometheus-adapter" in server.probe("/readyz"), 60)
        live = release.cluster.kubectl.get("apiservice", manifest["metadata"]["name"])
        assert manifest["spec"].items() <= live["spec"].items()
        assert server.get("/v1/services", server.token("tandem-operator"))[0] == 200, "reports go on"


NOT_USED_HERE = {("update", "secrets")}
"""Renewal comes after months."""


def test_the_server_needs_each_of_its_rights_and_no_other(release: Release, server: Server, team: Namespace) -> None:
    """The audit log of all of the above."""
    account = "system:serviceaccount:tandem-system:tandem-metrics"
    everything = AuditLog(release.cluster.audit_log)
    everything.start = 0
    entries = [e for e in everything.entries() if e["user"]["username"] == account]
    assert [e["requestURI"] for e in entries if e.get("responseStatus", {}).get("code") == 403] == []
    roles = [
        release.cluster.kubectl.get("clusterrole", "tandem-metrics"),
        release.cluster.kubectl.get("role", "tandem-metrics-secret", "-n", "tandem-system"),
        release.cluster.kubectl.get("clusterrole", "system:auth-delegator"),
        release.cluster.kubectl.get("role", "extension-apiserver-authentication-reader", "-n", "kube-system"),
    ]
    given = {
        (verb, ".".join(part for part in (resource, group) if part))
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        if role["metadata"]["name"] != "extension-apiserver-authentication-reader" or verb == "get"
    }
    assert used(entries) == given - NOT_USED_HERE


def test_scaling_goes_on_without_the_operator(
    operator: ExitStack, server: Server, load: Load, team: Namespace
) -> None:
    """The last test of the module: its operator ends here."""
    load.sequences = 1
    wait_replicas(team, server, lambda count: count == 1)
    operator.close()
    load.sequences = 20
    wait_replicas(team, server, lambda count: count > 1)
