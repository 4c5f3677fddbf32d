"""Reports on a service that the metrics server makes: of a busy one, and of one without traffic."""

from typing import Any

from tandem.metrics.report import ServiceReport

BUSY: dict[str, Any] = {
    "namespace": "team-a",
    "name": "llama",
    "observedAt": "2026-01-01T00:00:00Z",
    "windowSeconds": 60,
    "pods": 2,
    "running": 8.0,
    "tokensPerSecond": 400.0,
    "speculation": {
        "acceptanceRate": 0.75,
        "meanAcceptedLength": 3.9,
        "draftLength": 4,
        "drafted": True,
        "samples": 900,
    },
    "worth": {"speedup": 1.5, "low": 1.4, "high": 1.6, "samples": 900},
    "decision": {"load": 1.4, "desiredReplicas": 2, "signal": "Demand", "message": "two"},
}


def report(**changes: Any) -> ServiceReport:
    """The busy service; `changes` are merged into its parts."""
    parts = {
        key: {**BUSY[key], **value} if isinstance(value, dict) and isinstance(BUSY.get(key), dict) else value
        for key, value in changes.items()
    }
    return ServiceReport.model_validate({**BUSY, **parts})


def sure(speedup: float) -> dict[str, Any]:
    """A worth that is known well enough."""
    return {"speedup": speedup, "low": speedup - 0.05, "high": speedup + 0.05}


UNSEEN: dict[str, Any] = {"speedup": None, "low": None, "high": None, "samples": 0}


def quiet(**changes: Any) -> ServiceReport:
    """A window without traffic."""
    nothing = {"acceptanceRate": None, "meanAcceptedLength": None, "draftLength": None, "drafted": None, "samples": 0}
    idle = {"tokensPerSecond": 0.0, "speculation": nothing, "worth": UNSEEN}
    return report(**{**idle, **changes})
