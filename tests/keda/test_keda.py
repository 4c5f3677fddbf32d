"""KEDA itself scales a service: its operator, metrics adapter and webhooks; pods are simulated, their pages are not.

Tandem's trigger is KEDA's metrics-api scaler, which asks the metrics server with a token that KEDA makes, and checks
the server's certificate; no Prometheus is there.
"""

from collections.abc import Iterator

import pytest

from integration.conftest import AuditLog, Namespace, wait_for
from integration.metrics_server import AUTOSCALING, Server, collapse_acceptance, replicas, wait_replicas, wait_scaling
from integration.pages import Load
from integration.release import Release

from .gateway import Gateway
from .keda import ACCOUNT, NAMESPACE, Keda
from .scaling import HPA, autoscalers, conditions, demand, hold_without_metrics, serve, wait_ready


@pytest.fixture(scope="module", autouse=True)
def operator(release: Release, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tandem's operator, with the settings of the chart."""
    with release.running(tmp_path_factory.mktemp("operator")):
        yield


def test_load_drives_replicas_up_and_down(team: Namespace, load: Load, server: Server) -> None:
    """By the autoscaler that KEDA makes, on our kind's /scale."""
    load.sequences = 2
    serve(team, load)
    wait_scaling(team, server, "True")
    wait_ready(team, server)
    assert autoscalers(team) == [HPA], "one writer of /scale"
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    team.wait("ScalingActive", "True", 30)
    load.sequences = 1
    wait_replicas(team, server, lambda count: count == 1)


def test_acceptance_that_collapses_raises_replicas_at_constant_load(
    team: Namespace, load: Load, server: Server
) -> None:
    """Clients that send so many requests a second keep more in flight where each takes longer."""
    serve(team, load, objectives={}, maxReplicas=8)
    collapse_acceptance(team, load, server)


def test_without_metrics_replicas_are_held(team: Namespace, load: Load, server: Server) -> None:
    load.sequences = 20
    serve(team, load)
    wait_replicas(team, server, lambda count: count >= 3)
    hold_without_metrics(team, load, server)  # watches for 15 s
    team.wait("ScalingActive", "False", 15)
    assert "replicas stay as they are" in team.message("ScalingActive")
    load.cut = False
    wait_replicas(team, server, lambda count: count == 1)
    team.wait("ScalingActive", "True", 30)


def test_to_zero_and_back(team: Namespace, load: Load, server: Server, gateway: Gateway) -> None:
    """A gateway sees demand where there is no pod; Tandem's trigger is no fault meanwhile."""
    serve(team, load, {"triggers": [gateway.trigger()]}, minReplicas=0)
    wait_replicas(team, server, lambda count: count == 0)
    wait_ready(team, server)
    with pytest.raises(AssertionError, match="not within"):
        wait_for(
            "KEDA, which looks once a second, to find fault",
            lambda: not conditions(team)["Ready"].startswith("True"),
            10,
        )
    assert demand(team, server) == 0

    gateway.waiting = 5
    wait_replicas(team, server, lambda count: count == 1)
    load.sequences = 20
    wait_replicas(team, server, lambda count: count >= 3)
    gateway.waiting, load.sequences = 0, 0
    wait_replicas(team, server, lambda count: count == 0)


def test_no_figures_are_not_no_demand(team: Namespace, load: Load, server: Server, gateway: Gateway) -> None:
    """As while the first pod loads: the gateway has no requests, Tandem has no figures, which is an error.

    Whether the pod then stays is KEDA's: since 2.20 a poll that meets a renewal of its scalers, which each error asks
    for, counts the trigger as one without demand (`getScalerState` and `ErrCacheClosed`, scale_handler.go).
    """
    gateway.waiting = 5
    serve(team, load, {"triggers": [gateway.trigger()]}, minReplicas=0)
    team.wait("ScalingActive", "True", 60)
    wait_for("figures", lambda: demand(team, server) == 0)
    wait_ready(team, server)
    load.cut = True
    wait_for("figures to be none", lambda: demand(team, server) is None)
    wait_for("Tandem's trigger to have no figure", lambda: not conditions(team)["Ready"].startswith("True"), 60)
    gateway.waiting = 0
    assert replicas(team) == 1
    wait_for("KEDA shows an error", lambda: conditions(team)["Ready"] == "False/TriggerError", 30)
    load.cut = False
    wait_replicas(team, server, lambda count: count == 0)


def test_idle_at_zero_else_no_fewer_than_the_minimum(
    team: Namespace, load: Load, server: Server, gateway: Gateway
) -> None:
    gateway.waiting = 5
    serve(team, load, {"triggers": [gateway.trigger()], "idleReplicaCount": 0}, minReplicas=2)
    wait_replicas(team, server, lambda count: count == 2)
    gateway.waiting = 0
    wait_replicas(team, server, lambda count: count == 0)
    gateway.waiting = 5
    wait_replicas(team, server, lambda count: count == 2)


def test_another_source_and_back_changes_no_replica(team: Namespace, load: Load, server: Server) -> None:
    """KEDA's webhook refuses a ScaledObject beside another autoscaler: the old one goes first."""
    load.sequences = 20
    serve(team, load)
    wait_replicas(team, server, lambda count: count == 4)
    seen = {replicas(team)}
    team.apply(autoscaling={**AUTOSCALING, "source": "Embedded"}, serving={"maxBatchSize": load.batch})
    wait_for("KEDA's autoscaler to go", lambda: autoscalers(team) == ["svc-server"], 60)
    wait_scaling(team, server, "True")
    seen.add(replicas(team))
    serve(team, load)
    wait_for("KEDA's autoscaler", lambda: autoscalers(team) == [HPA], 60)
    wait_scaling(team, server, "True")
    assert seen | {replicas(team)} == {4}


def test_rights_of_kedas_manifests_and_of_the_chart_are_enough(keda: Keda, team: Namespace) -> None:
    """The audit log of all of the above."""
    everything = AuditLog(keda.cluster.audit_log, everything=True)
    own = [e for e in everything.entries() if e["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"]
    refused = [e["responseStatus"]["message"] for e in own if e.get("responseStatus", {}).get("code") == 403]
    # It goes on for a moment in a namespace that is being deleted, which takes nothing new.
    assert [message for message in refused if "because it is being terminated" not in message] == []
    assert any(e["requestURI"].endswith("/serviceaccounts/tandem-metrics-keda/token") for e in own)
