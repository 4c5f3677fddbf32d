"""A cluster of the tests' own, and the operator as the process that it is in production."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cluster.core import Cluster
from cluster.errors import ClusterError
from cluster.ports import free_port
from support import images
from support.order import first

REPOSITORY = Path(__file__).parents[2]
STAGES = Path(__file__).parent / "stages"
NAMES = itertools.count()
KEDA = REPOSITORY / "tests/data/third_party/scaledobjects.yaml"
KEDA_CRD = "scaledobjects.keda.sh"
LWS = REPOSITORY / "tests/data/third_party/leaderworkersets.yaml"
LWS_CRD = "leaderworkersets.leaderworkerset.x-k8s.io"

SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: svc}
spec:
  runtime: {mode: BLS, profile: reference}
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4}
"""


LONG = (
    *("test_outage", "test_examples", "test_faults", "test_metrics_server", "test_autoscaling"),
    *("test_figures_in_status", "test_operator", "test_chart", "test_release"),
)
"""Files that take longest, or wait for minutes without work for a core."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `first`."""
    first(items, LONG)


RESYNC_SECONDS = 2.0
"""Between two comparisons of an operator's watches with what is there."""
PATIENCE = 180.0
"""Seconds for what takes a few where nothing else runs: how long is not what is tested."""


def wait_for(what: str, check: Callable[[], Any], seconds: float = PATIENCE, log: Path | None = None) -> Any:
    """Poll `check` until it returns something true, which is returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.1)
    tail = log.read_text(encoding="utf-8")[-3000:] if log else ""
    raise AssertionError(f"not within {seconds} s: {what}\n{tail}")


def wait_established(cluster: Cluster, crd: str) -> None:
    """Wait until a definition is served. kubectl fails, rather than waits, while it has no conditions at all.

    Established, its kind may still be missing in what the API server tells of itself.
    """
    established = ("wait", "--for=condition=Established", f"crd/{crd}", "--timeout=5s")
    wait_for(f"{crd} to be established", lambda: cluster.kubectl.works(*established))
    wait_for(f"{crd} to be served", lambda: _is_read(cluster, crd.split(".")[0]))


def _is_read(cluster: Cluster, plural: str) -> bool:
    try:
        cluster.reader.items(plural, namespace="")
    except ClusterError:
        return False
    return True


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two simulated nodes, the definitions of all that Tandem writes. Each process that runs tests has its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    made = Cluster(f"tandem-integration-{worker}", say=print)
    made.down()
    stages = made.folder / "stages"
    stages.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(STAGES, stages)
    made.up(["simulated:2"])
    made.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
    wait_established(made, "speculativeinferenceservices.serving.tandem.dev")
    install_groups(made)
    install_scaled_objects(made)
    yield made
    made.down()


def install_scaled_objects(cluster: Cluster) -> None:
    """The definition of KEDA's ScaledObjects; nobody acts on them."""
    cluster.kubectl.run("apply", "--server-side", "-f", str(KEDA))
    wait_established(cluster, KEDA_CRD)


def install_groups(cluster: Cluster) -> None:
    """LeaderWorkerSet's definition."""
    cluster.kubectl.run("apply", "--server-side", "-f", str(LWS))
    wait_established(cluster, LWS_CRD)


class Namespace:
    """kubectl in one namespace."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl.run("-n", self.name, *arguments, stdin=stdin)

    def works(self, *arguments: str, stdin: str | None = None) -> bool:
        """Whether kubectl succeeds."""
        try:
            self.run(*arguments, stdin=stdin)
        except ClusterError:
            return False
        return True

    def apply(self, text: str = SERVICE, **changes: Any) -> None:
        """Apply a service; `changes` are dotted paths below spec, with `__` for the dot; None removes."""
        self.run("apply", "-f", "-", stdin=json.dumps(edited(text, **changes)))

    def get(self, kind: str, name: str) -> Any:
        """An object; None when there is none."""
        return self.cluster.reader.get(kind, name, self.name)

    def items(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        return self.cluster.reader.items(kinds, self.name, selector)

    def conditions(self, name: str = "svc") -> dict[str, str]:
        """Condition type to `Status/Reason`, of the current generation only; empty when there is none yet."""
        service = self.get("sis", name)
        status = service.get("status", {})
        if status.get("observedGeneration") != service["metadata"]["generation"]:
            return {}
        return {c["type"]: f"{c['status']}/{c['reason']}" for c in status["conditions"]}

    def message(self, condition: str, name: str = "svc") -> str:
        conditions = self.get("sis", name)["status"]["conditions"]
        return next(str(c["message"]) for c in conditions if c["type"] == condition)

    def wait(self, condition: str, wanted: str, seconds: float = PATIENCE, name: str = "svc") -> None:
        """Wait until a condition is `Status` or `Status/Reason`."""
        try:
            wait_for(
                f"{condition}={wanted}",
                lambda: self.conditions(name).get(condition, "").startswith(wanted),
                seconds,
            )
        except AssertionError as error:
            seen = self.run("get", "sis,jobs,pods,nodes", "-o", "wide")
            raise AssertionError(f"{error}\n{self.conditions(name)}\n{seen}") from error

    def wait_settled(self, name: str = "svc") -> None:
        """Wait until the service is Ready and the Event that says so, the last that is written then, is there."""
        self.wait("Ready", "True", name=name)
        wait_for("the Event that it is Ready", lambda: "ServersAnswer" in self.events(name))

    def events(self, name: str = "svc") -> list[str]:
        """Reasons of Tandem's Events of a service, as often as it wrote them."""
        found = [e for e in self.items("events") if e["source"].get("component") == "tandem"]
        return [str(e["reason"]) for e in found if e["involvedObject"]["name"] == name]

    def children(self) -> set[str]:
        """`Kind/name` of all that Tandem made and is not transient."""
        found = self.items("deploy,svc,sa,cm,pdb,netpol", "app.kubernetes.io/managed-by=tandem")
        return {f"{child['kind']}/{child['metadata']['name']}" for child in found}

    def server_pods(self) -> dict[str, str]:
        """Name to UID of the server pods."""
        pods = self.items("pods", "serving.tandem.dev/component=server")
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}


def offer_volume(namespace: "Namespace", claim: str = "tandem-cache") -> None:
    """A volume that a claim, that of models and engines if none is named, can have: nobody provisions any here."""
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"cache-{next(NAMES)}-{namespace.name}"},
        "spec": {
            "capacity": {"storage": "500Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/none"},
            "claimRef": {"namespace": namespace.name, "name": claim},
        },
    }
    namespace.run("apply", "-f", "-", stdin=json.dumps(volume))


def edited(text: str, **changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = raw["spec"]
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return raw


def new_namespace(cluster: Cluster) -> Namespace:
    made = Namespace(cluster, f"test-{next(NAMES)}-{os.getpid()}")
    cluster.kubectl.run("create", "namespace", made.name)
    return made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A fresh namespace; removed, without waiting, afterwards."""
    made = new_namespace(cluster)
    yield made
    made.run("delete", "sis", "--all")  # before its children: the operator runs on, and would repair them
    cluster.kubectl.run("delete", "namespace", made.name, "--wait=false")


@pytest.fixture(scope="session")
def untouched(cluster: Cluster) -> Namespace:
    """A namespace for tests that leave nothing behind: those of requests that are refused, or only tried."""
    return new_namespace(cluster)


class OperatorProcess:
    """`tandem operator run`, as a process that can be killed."""

    def __init__(self, cluster: Cluster, folder: Path, port: int = 0) -> None:
        self.cluster = cluster
        self.port = port or free_port()
        self.log = folder / f"operator-{self.port}.log"
        self.settings = folder / f"settings-{self.port}.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """For its next start, over the usual one."""
        self.add_settings(**images.SETTINGS, resyncSeconds=RESYNC_SECONDS)
        self.add_settings(lease={"durationSeconds": 15, "renewSeconds": 1})

    def add_settings(self, **settings: Any) -> None:
        """For its next start."""
        with self.settings.open("a", encoding="utf-8") as file:
            yaml.safe_dump(settings, file)

    def start(self, pod_name: str = "operator-0") -> "OperatorProcess":
        """Start it; a stable pod name takes up its own Lease at once, as in a restarted container."""
        command = [sys.executable, "-m", "tandem", "operator", "run", "--log-format", "text"]
        command += ["--bind", f"127.0.0.1:{self.port}", "--settings", str(self.settings)]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "POD_NAME": pod_name}
        environment |= self.environment
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        return self

    def probe(self, path: str) -> tuple[int, str]:
        """Status code and text of `/readyz` or `/healthz`; 0 while it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self, seconds: float = PATIENCE) -> "OperatorProcess":
        wait_for("the operator's /readyz", lambda: self.probe("/readyz")[0] == 200, seconds, self.log)
        return self

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def usage(self) -> psutil.Process:
        """The running process."""
        assert self.process is not None
        return psutil.Process(self.process.pid)


@pytest.fixture(scope="session")
def lasting_operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """What `operator` starts; it runs on from test to test, as in production from service to service."""
    made = OperatorProcess(cluster, tmp_path_factory.mktemp("operator"))
    yield made
    if made.runs:
        made.kill()


@pytest.fixture
def operator(lasting_operator: OperatorProcess) -> OperatorProcess:
    """A running operator; the next test has it started again where a test ends it."""
    if not lasting_operator.runs:
        lasting_operator.start()
    return lasting_operator.wait_ready()


@pytest.fixture
def operator_with(lasting_operator: OperatorProcess, tmp_path: Path) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts an operator with more settings, in the place of the usual one."""
    if lasting_operator.runs:
        lasting_operator.stop()
    made = OperatorProcess(lasting_operator.cluster, tmp_path)

    def start(**settings: Any) -> OperatorProcess:
        made.add_settings(**settings)
        return made.start().wait_ready()

    yield start
    if made.runs:
        made.stop()


LATE = (404, 409)
"""Status codes of a write that rests on an old state: the object is gone, or has changed."""


class AuditLog:
    """Requests that the API server received since a moment.

    It writes of a request after it has answered it: whoever saw what a request did may be earlier than its entry.
    """

    LAG_SECONDS = 1.0

    def __init__(self, path: Path, *, everything: bool = False) -> None:
        self.path = path
        self.start = 0 if everything else path.stat().st_size
        self.since = "" if everything else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def entries(self) -> list[dict[str, Any]]:
        time.sleep(self.LAG_SECONDS)
        with self.path.open("rb") as log:
            log.seek(max(0, self.start - 1))
            if self.start:
                log.readline()  # the rest of an entry that was being written then
            found = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [entry for entry in found if entry["requestReceivedTimestamp"] >= self.since]

    def operator_writes(self, namespace: Namespace) -> list[str]:
        """`verb resource/subresource/name` of the operator's writes in a namespace, without those that the API server
        refused since they rest on an old state: they are no fault, and are tried again."""
        found = []
        for entry in self.entries():
            agent = entry.get("userAgent", "")
            reads = entry["verb"] in ("get", "list", "watch")
            if reads or entry["stage"] != "ResponseComplete" or not agent.startswith(("tandem/", "kopf")):
                continue
            ref = entry.get("objectRef", {})
            refused = entry["verb"] != "create" and entry.get("responseStatus", {}).get("code") in LATE
            if ref.get("namespace") != namespace.name or refused:
                continue
            found.append(f"{entry['verb']} {ref.get('resource')}/{ref.get('subresource', '')}/{ref.get('name')}")
        return found


def quiet(cluster: Cluster, namespace: Namespace, seconds: float = 2.0) -> AuditLog:
    """Listen from now on, once the operator has written nothing in a namespace for so long: what it has begun with,
    an Event behind a status, say, is over."""

    def listening() -> AuditLog | None:
        begun = AuditLog(cluster.audit_log)
        time.sleep(seconds)
        return None if begun.operator_writes(namespace) else begun

    found: AuditLog = wait_for("the operator to write no more", listening)
    return found


@pytest.fixture
def audit(cluster: Cluster) -> Callable[[], AuditLog]:
    """Call it to start listening."""
    return lambda: AuditLog(cluster.audit_log)
