"""Services that KEDA scales, and what KEDA says of them."""

import time
from typing import Any

from integration.conftest import Namespace
from integration.metrics_server import AUTOSCALING, Server, replicas, wait_scaling, wait_told
from integration.pages import Load

QUICK = {"pollingInterval": 1, "cooldownPeriod": 3}
HPA, SCALED_OBJECT = "keda-hpa-svc-server", "svc-server"


def serve(team: Namespace, load: Load, keda: dict[str, Any] | None = None, **autoscaling: Any) -> None:
    """Bring a service up that KEDA scales."""
    asked = {**AUTOSCALING, "source": "KEDA", "keda": {**QUICK, **(keda or {})}, **autoscaling}
    team.apply(autoscaling=asked, serving={"maxBatchSize": load.batch})
    team.wait("Ready", "True", 60)


def hold_without_metrics(team: Namespace, load: Load, server: Server) -> None:
    """Cut the pods' pages, have less asked for, and hold the replicas to where they are."""
    load.cut = True
    wait_scaling(team, server, "False")
    load.sequences = 1
    hold(team, server)


def hold(team: Namespace, server: Server) -> None:
    """See replicas stay as they are for 15 s; a failure shows what KEDA and the server report."""
    held, end, seen = replicas(team), time.monotonic() + 15, ""
    while time.monotonic() < end:
        now = replicas(team)
        state = f"KEDA {conditions(team)}, the server {demand(team, server)}"
        assert now == held, f"{held} replicas ({seen}), then {now} ({state})"
        seen = state
        time.sleep(0.1)


def conditions(team: Namespace) -> dict[str, str]:
    """KEDA's conditions of the ScaledObject: type to `Status/Reason`."""
    found = team.get("scaledobject", SCALED_OBJECT) or {}
    return {c["type"]: f"{c['status']}/{c.get('reason')}" for c in found.get("status", {}).get("conditions", [])}


def autoscalers(team: Namespace) -> list[str]:
    """Names of the HorizontalPodAutoscalers, KEDA's own too."""
    return [hpa["metadata"]["name"] for hpa in team.items("hpa")]


def demand(team: Namespace, server: Server) -> float | None:
    """Replicas that the metrics server asks for; None while it knows no figures."""
    code, report = server.get(f"/v1/services/{team.name}/svc", server.token("tandem-operator"))
    load = report["decision"].get("load") if code == 200 else None
    return None if load is None else float(load)


def wait_ready(team: Namespace, server: Server) -> None:
    """Wait until KEDA finds nothing wrong with the triggers."""
    wait_told(
        team, server, f"Ready of {conditions(team)}", lambda: conditions(team).get("Ready", "").startswith("True"), 60
    )
