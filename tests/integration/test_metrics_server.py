"""The metrics server behind the real API server and the real autoscaler: pods are simulated, their pages are not."""

import base64
import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.controlplane import HPA_SYNC_SECONDS
from cluster.errors import ClusterError
from tandem.metrics_server.authentication import AUDIENCE

from .at_once import created_at_once
from .conftest import AuditLog, Namespace, wait_for
from .metrics_server import (
    AUTOSCALING,
    FAST_SERVER,
    Server,
    add_endpoint,
    collapse_acceptance,
    held,
    replicas,
    scaling_active,
    served,
    telling_cluster,
    wait_replicas,
    wait_scaling,
)
from .pages import Load, serving
from .release import FAST, GROUP, Release, used

APISERVICE = "v1beta2.custom.metrics.k8s.io"
METRIC = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-a/speculativeinferenceservices.{GROUP}"
PLAYGROUND = {"page": {"enabled": True, "playground": True}}
SECOND = "tandem-metrics-second"
MADE = "certificate made: the Secret tandem-system/tandem-metrics-certificate"


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The chart in a cluster of its own."""
    with telling_cluster("tandem-metrics", "tandem-system", "team-a") as cluster:
        release = Release(
            cluster, "tandem", "tandem-system", {**FAST, "metricsServer": {**FAST_SERVER, **PLAYGROUND}}
        )
        release.install()
        yield release


@pytest.fixture(scope="module")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its metrics server."""
    with served(release, tmp_path_factory.mktemp("metrics")) as made:
        yield made


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
    made.wait("Ready", "True")
    return made


def available(release: Release) -> bool:
    return release.cluster.kubectl.works(
        "wait", "--for=condition=Available", f"apiservice/{APISERVICE}", "--timeout=1s"
    )


def test_two_that_start_at_once_share_one_certificate(release: Release, tmp_path: Path) -> None:
    """The first test of the module: there is no certificate yet. Who deletes it gets another, one for both again."""
    assert not held(release, "tls.crt")
    servers = [Server(release, tmp_path / name) for name in ("a", "b")]

    def agree(before: str) -> bool:
        now = held(release, "tls.crt")
        bundle = release.cluster.kubectl.get("apiservice", APISERVICE)["spec"].get("caBundle", "")
        trusted = base64.b64decode(bundle).decode() == held(release, "ca.crt")
        return now not in ("", before) and trusted and all(same(each.shows(), now) for each in servers)

    try:
        for each in servers:
            each.folder.mkdir()
            each.configure()
        with created_at_once(release.cluster, tmp_path, "secrets", release.namespace, number=2):
            for each in servers:
                each.launch()
            for each in servers:
                each.wait_ready()
        wait_for("one certificate", lambda: agree(""), log=servers[0].log)
        before = held(release, "tls.crt")
        release.kubectl("delete", "secret", "tandem-metrics-certificate")
        wait_for("another", lambda: agree(before), log=servers[0].log)
        made = [line for each in servers for line in each.log.read_text("utf-8").splitlines() if MADE in line]
        assert len(made) == 2, "one of them made it, each time"
        for each in servers:
            each.stop()
    finally:
        for each in servers:
            each.kill()


def same(one: str, other: str) -> bool:
    """Whether two certificates (PEM) are equal, however their lines are broken."""
    return one.split() == other.split()


def test_the_api_server_trusts_it_and_shows_its_metrics(release: Release, server: Server) -> None:
    wait_for("the APIService to be available", lambda: available(release), log=server.log)
    asked = ("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2")
    wait_for("the API server to lead there", lambda: release.cluster.kubectl.works(*asked), log=server.log)
    found = json.loads(release.cluster.kubectl.run(*asked))
    assert f"speculativeinferenceservices.{GROUP}/tandem_replicas_needed" in [r["name"] for r in found["resources"]]


def metric(team: Namespace, name: str) -> str:
    """A figure as the API server has it; empty while there is none."""
    try:
        return str(json.loads(team.run("get", "--raw", f"{METRIC}/svc/{name}"))["items"][0]["value"])
    except ClusterError:
        return ""


def test_load_drives_replicas_up_and_down(team: Namespace, load: Load, server: Server) -> None:
    """By the real HPA, on our kind's /scale."""
    load.sequences = 2
    wait_scaling(team, server, "True")
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    wait_for("their pods to be read", lambda: len(load.pods) >= 3)
    # People read the others through the API server; after a pause of the machine there is no figure for a moment.
    read = wait_for("acceptance", lambda: metric(team, "tandem_acceptance_rate"), log=server.log)
    assert read == "800m"
    load.sequences = 1
    wait_replicas(team, server, lambda count: count == 1)


def test_acceptance_that_collapses_raises_replicas_at_the_same_rate(
    team: Namespace, load: Load, server: Server
) -> None:
    """Clients that ask for as many tokens a second have more requests in flight where each takes longer.

    No objective is set: demand, and what a replica can do, decide alone.
    """
    serving = {"maxBatchSize": load.batch}
    team.apply(autoscaling={**AUTOSCALING, "objectives": {}, "maxReplicas": 8}, serving=serving)
    before, after = collapse_acceptance(team, load, server)
    assert after["signal"] == "Demand"
    assert after["value"] < 2 * before["value"], "no more is asked for than before, but for what waits"
    assert after["capacityPerReplica"] < before["capacityPerReplica"], "of which a replica can do less"
    load.sequences, load.acceptance = 1, 0.8
    team.apply(autoscaling=AUTOSCALING, serving=serving)


def assert_held(team: Namespace, load: Load) -> None:
    """Replicas stay through some looks of the autoscaler, though one would be enough."""
    held, load.sequences = replicas(team), 1
    until = time.monotonic() + 4 * HPA_SYNC_SECONDS
    while time.monotonic() < until:
        assert replicas(team) == held
        time.sleep(0.2)


def test_without_metrics_replicas_are_held(team: Namespace, load: Load, server: Server) -> None:
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    load.cut = True
    wait_for("the figures to be gone", lambda: not metric(team, "tandem_replicas_needed"), log=server.log)
    wait_scaling(team, server, "False", "is not known now")
    assert_held(team, load)
    load.cut = False
    wait_scaling(team, server, "True")


def test_without_a_metrics_server_replicas_are_held(team: Namespace, load: Load, server: Server) -> None:
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    server.kill()
    wait_for("the autoscaler to notice", lambda: scaling_active(team)[0] == "False", log=server.log)
    assert_held(team, load)
    server.launch()
    server.wait_ready()
    wait_scaling(team, server, "True")
    wait_replicas(team, server, lambda count: count == 1)


OF_OPERATOR = [
    # why, audience of the operator's token, status
    ("one for the API server is refused", "", 401),
    ("one for somebody else is refused", "vault", 401),
    ("one for the metrics server is taken", AUDIENCE, 200),
]


@pytest.mark.parametrize(("audience", "status"), [o[1:] for o in OF_OPERATOR], ids=[o[0] for o in OF_OPERATOR])
def test_a_token_must_be_for_the_metrics_server(team: Namespace, server: Server, audience: str, status: int) -> None:
    """Reviewed by the API server itself."""
    wait_for("reports", lambda: server.probe("/readyz").startswith("ok"))
    code, body = server.get("/v1/services", server.token("tandem-operator", audience))
    assert code == status, body
    assert status == 200 or f"--audience={AUDIENCE}" in json.dumps(body)


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


PAGE = [
    # role in team-a, services that are listed, status of one service, of a prompt
    ("view", ["svc"], 200, 403),
    ("edit", ["svc"], 200, 200),
    ("", [], 403, 403),
]


@pytest.mark.parametrize(("role", "listed", "one", "prompt"), PAGE, ids=[p[0] or "none" for p in PAGE])
def test_the_page_shows_what_the_built_in_roles_allow(
    release: Release, team: Namespace, server: Server, role: str, listed: list[str], one: int, prompt: int
) -> None:
    account = f"page-{role or 'none'}"
    release.kubectl("create", "serviceaccount", account)
    if role:
        subject = f"--serviceaccount={release.namespace}:{account}"
        team.run("create", "rolebinding", account, f"--clusterrole={role}", subject)
    token, path = server.token(account), "/ui/api/services/team-a/svc"

    def names() -> list[str]:
        code, body = server.get("/ui/api/services", token)
        assert code == 200, body
        return [item["name"] for item in body["items"]]

    # A role holds once the API server has heard of it.
    wait_for("the list", lambda: names() == listed, log=server.log)

    def answer() -> tuple[int, dict[str, Any]] | None:
        # A pod of the test before may not have ended yet.
        code, body = server.get(path, token)
        return None if code == 200 and len(body["service"]["pods"]) > 1 else (code, body)

    code, body = wait_for("one pod", answer, log=server.log)
    assert code == one, body
    if one == 200:
        assert body["service"]["summary"]["state"] == "Ready"
        assert [pod["ready"] for pod in body["service"]["pods"]] == [True]
        assert (body["service"]["playground"] == "") is (prompt == 200)
    code, body = server.get(f"{path}/completions", token, b'{"prompt": "def f"}')
    assert code == prompt, body
    assert prompt == 403 or "nothing answers at svc-triton.team-a.svc:8001" in body["error"], (
        "this host has no such name"
    )


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
        lost = "monitoring/prometheus-adapter, which is left alone: autoscalers ask here for all custom metrics"
        wait_for("the server to notice", lambda: lost in server.probe("/readyz"))
        live = release.cluster.kubectl.get("apiservice", manifest["metadata"]["name"])
        assert manifest["spec"].items() <= live["spec"].items()
        assert server.get("/v1/services", server.token("tandem-operator"))[0] == 200, "reports go on"


@contextmanager
def second_server(release: Release, folder: Path) -> Iterator[Server]:
    """Another one behind the same Service. Its endpoint, which is ours to remove, is `SECOND`."""
    made = Server(release, folder)
    try:
        made.start()
        add_endpoint(release.cluster, release.namespace, "tandem-metrics", made.port, SECOND)
        wait_for("the API server to ask it", lambda: asked(made) > 0, log=made.log)
        yield made
    finally:
        made.kill()
        release.kubectl("delete", "endpointslice", SECOND, "--ignore-not-found")


def asked(server: Server) -> float:
    """How many answers this one gave."""
    lines = server.probe("/metrics").splitlines()
    answers = [line for line in lines if line.startswith('tandem_metrics_requests_total{code="200"')]
    return sum(float(line.split()[-1]) for line in answers)


def undisturbed(team: Namespace, seconds: float) -> bool:
    """Whether the metric is there, and the HPA active, each time that we look."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not metric(team, "tandem_replicas_needed") or scaling_active(team)[0] != "True":
            return False
        time.sleep(0.2)
    return True


def goes_unnoticed(release: Release, team: Namespace, folder: Path) -> bool:
    """Whether one of two may go as a pod that is evicted: its endpoint first, then its process."""
    with second_server(release, folder) as second:
        before = undisturbed(team, 2 * HPA_SYNC_SECONDS)
        release.kubectl("delete", "endpointslice", SECOND)
        second.stop()
        return before and undisturbed(team, 3 * HPA_SYNC_SECONDS)


def test_one_of_two_servers_goes_unnoticed(
    release: Release, server: Server, team: Namespace, load: Load, tmp_path: Path
) -> None:
    load.sequences = 1
    for _ in range(3):  # after a pause of the machine there is no figure for a moment
        wait_scaling(team, server, "True")
        if goes_unnoticed(release, team, tmp_path):
            return
    raise AssertionError(f"noticed, three times: {scaling_active(team)}")


def test_one_of_two_servers_dies(
    release: Release, server: Server, team: Namespace, load: Load, tmp_path: Path
) -> None:
    """Its endpoint stays until somebody has seen it: half of what is asked fails meanwhile, and nothing is lost."""
    load.sequences = 20
    needed = math.ceil(load.sequences / load.batch)  # one more for a moment, while load comes: that one may go again
    wait_replicas(team, server, lambda count: count >= needed)
    wait_scaling(team, server, "True")
    with second_server(release, tmp_path) as second:
        second.kill()
        wait_for("the metric", lambda: metric(team, "tandem_replicas_needed"), log=server.log)
        release.kubectl("delete", "endpointslice", SECOND)
        wait_for("all of it, from the other", lambda: undisturbed(team, 2 * HPA_SYNC_SECONDS), 90, server.log)
        assert replicas(team) >= needed


NOT_USED_HERE = {("update", "secrets")}
"""Renewal comes after months."""


def test_the_server_needs_each_of_its_rights_and_no_other(release: Release, server: Server, team: Namespace) -> None:
    """The audit log of all of the above."""
    account = "system:serviceaccount:tandem-system:tandem-metrics"
    everything = AuditLog(release.cluster.audit_log, everything=True)
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


def workload(team: Namespace) -> tuple[int, int]:
    """Replicas that the Deployment is to have, and those that are Ready."""
    live = team.get("deployment", "svc-server")
    return live["spec"]["replicas"], live["status"].get("readyReplicas", 0)


def test_scaling_goes_on_without_the_operator(
    operator: ExitStack, server: Server, load: Load, team: Namespace, release: Release, tmp_path: Path
) -> None:
    """The module's operator ends here. The number is asked for meanwhile; pods follow when there
    is an operator again."""
    load.sequences = 1
    wait_replicas(team, server, lambda count: count == 1)
    wait_for("one pod", lambda: workload(team) == (1, 1))
    operator.close()
    load.sequences = 20
    wait_replicas(team, server, lambda count: count > 1)
    assert workload(team) == (1, 1), "nobody else copies the number to the workload"
    with release.running(tmp_path):
        wait_for("as many pods as are asked for", lambda: workload(team) == (replicas(team),) * 2)
        team.wait("Ready", "True")
        assert workload(team)[1] > 1


def test_without_rights_in_the_cluster_the_operator_reads_the_pods(
    operator: ExitStack, server: Server, load: Load, team: Namespace, release: Release, tmp_path: Path
) -> None:
    """A release for the namespace alone, and no metrics server: the figures in status go on. The last of all: the
    module's operator and server end here."""
    operator.close()
    server.stop()
    values = {**FAST, "metricsServer": FAST_SERVER, "crds": {"install": False}, "namespaces": [team.name]}
    alone = Release(release.cluster, "tandem-team", team.name, values)
    alone.install()
    load.sequences, load.acceptance = 4, 0.5

    def shown() -> float:
        status = team.get("sis", "svc")["status"]
        return float((status.get("speculation") or {}).get("acceptanceRate", 0.0))

    with alone.running(tmp_path):
        wait_for("the figures of the pods", lambda: abs(shown() - 0.5) < 0.05, log=tmp_path / "operator.log")
        team.wait("MetricsAvailable", "True/Reported")
    assert not release.cluster.kubectl.works("get", "deployment", "tandem-team-metrics", "-n", team.name)
