"""What the metrics server's tests share: reports, and a stand-in for the API server's reviews."""

from typing import Any

import pytest

from tandem.errors import Transient
from tandem.metrics_api.authentication import AUDIENCE
from tandem.report import Decision, ServiceReport, Speculation

TOKENS = {
    "hpa-token": {"username": "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "groups": ["hpas"]},
    "team-a-token": {"username": "alice", "groups": ["team-a"], "uid": "u1", "extra": {"scopes": ["x"]}},
    "nameless-token": {},
}
KEDA: dict[str, Any] = {"username": "system:serviceaccount:keda:tandem-metrics-keda", "groups": ["accounts"]}
FOR_US = {"keda-token": [AUDIENCE, "another"], "careless-token": None}
"""Tokens that are not for the API server, and the audiences that a review of them confirms; None: it does not say."""


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
    if audiences and token in FOR_US:
        confirmed = FOR_US[token]
        said = {} if confirmed is None else {"audiences": [one for one in audiences if one in confirmed]}
        return {"authenticated": True, "user": KEDA, **said}
    user = None if audiences else TOKENS.get(token)
    return {"authenticated": False, "error": "expired"} if user is None else {"authenticated": True, "user": user}


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
        speculation=Speculation(acceptance_rate=0.8123),
        decision=Decision(load=load, signal="Demand" if load is not None else "Hold", message=""),
    )
