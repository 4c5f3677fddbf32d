"""What the metrics server's tests share: reports, and a stand-in for the API server's reviews."""

from typing import Any

import pytest

from tandem.errors import Transient
from tandem.metrics.report import ScalingDecision, ServiceReport, SpeculationReport
from tandem.metrics_server.authentication import AUDIENCE

TOKENS = {
    "hpa-token": {"username": "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "groups": ["hpas"]},
    "team-a-token": {"username": "alice", "groups": ["team-a"], "uid": "u1", "extra": {"scopes": ["x"]}},
    "nameless-token": {},
}
"""Tokens for the metrics server, and whose they are."""
KEDA: dict[str, Any] = {"username": "system:serviceaccount:keda:tandem-metrics-keda", "groups": ["accounts"]}
OTHERS: dict[str, list[str] | None] = {
    "keda-token": [AUDIENCE, "another"],
    "cluster-wide": ["https://kubernetes.default.svc"],
    "careless-token": None,
}
"""Tokens with their audiences, as a review of them confirms them; None: it does not say."""


class FakeReviews:
    """Answers TokenReviews from TOKENS, and SubjectAccessReviews by `allowed`, as (user, what) pairs."""

    def __init__(self) -> None:
        self.down = False
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.allowed: set[tuple[str, str]] = set()

    async def review(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((kind.kind, spec))
        if self.down:
            raise Transient("away")
        if kind.kind == "TokenReview":
            return _token_review(spec["token"], spec.get("audiences"))
        wanted = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        what = wanted.get("path") or f"{wanted['namespace']}/{wanted['name']}/{wanted['subresource']}"
        return {"allowed": (spec["user"], what) in self.allowed}


def _token_review(token: str, audiences: list[str] | None) -> dict[str, Any]:
    """As the API server: its own audience is meant where none is named, and a token must have one of those named."""
    wanted = audiences or OTHERS["cluster-wide"]
    user, confirmed = (TOKENS[token], [AUDIENCE]) if token in TOKENS else (KEDA, OTHERS.get(token, []))
    if confirmed is None:
        return {"authenticated": True, "user": user}
    if shared := [one for one in wanted or () if one in confirmed]:
        return {"authenticated": True, "user": user, "audiences": shared}
    return {"authenticated": False, "error": "expired"}


@pytest.fixture
def reviews() -> FakeReviews:
    return FakeReviews()


def report(name: str = "llama", namespace: str = "team-a", load: float | None = 2.5) -> ServiceReport:
    return ServiceReport(
        namespace=namespace,
        name=name,
        observed_at="2026-11-21T22:00:00Z",
        window_seconds=60,
        running=12.0,
        speculation=SpeculationReport(acceptance_rate=0.8123),
        decision=ScalingDecision(load=load, signal="Demand" if load is not None else "Hold", message=""),
    )
