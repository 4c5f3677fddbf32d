"""What the API server is asked about a request, and what its answers mean."""

from dataclasses import replace
from typing import Any

import pytest

from tandem.cluster.kinds import SERVICE, SERVICES_KIND, SUBJECT_ACCESS_REVIEW, Kind
from tandem.metrics_server.authentication import User
from tandem.metrics_server.authorization import Authorizer, MetricRequest, ObjectRequest, PathRequest

ASKS = User("ann", "uid-1", ("team-a",), (("scopes", ("read", "list")),))
METRIC = MetricRequest("ns", "services.example", "llama", "tandem_replicas_needed")


class Reviews:
    """Answers every review with `status`, and remembers what was asked."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status
        self.asked: list[dict[str, Any]] = []

    async def review(self, kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
        assert kind is SUBJECT_ACCESS_REVIEW
        self.asked.append(spec)
        return self.status


@pytest.mark.parametrize(
    ("status", "allowed", "reason"),
    [
        ({"allowed": True}, True, "an authorizer allows it"),
        ({"allowed": False}, False, "none has an opinion"),
        ({}, False, "no answer is no"),
        ({"allowed": True, "denied": True}, False, "one denies it, whatever others say"),
    ],
)
async def test_what_an_answer_means(status: dict[str, Any], allowed: bool, reason: str) -> None:
    assert await Authorizer(Reviews(status)).allows(ASKS, METRIC) is allowed, reason


async def test_the_review_says_who_asks_and_for_what() -> None:
    reviews = Reviews({"allowed": True})
    authorizer = Authorizer(reviews)
    await authorizer.allows(ASKS, METRIC)
    await authorizer.allows(ASKS, PathRequest("/v1/services"))
    await authorizer.allows(ASKS, ObjectRequest("create", SERVICE, "ns", "llama-triton", "proxy"))
    await authorizer.allows(ASKS, ObjectRequest("list", SERVICES_KIND))
    who = {"user": "ann", "uid": "uid-1", "groups": ["team-a"], "extra": {"scopes": ["read", "list"]}}
    metric = {
        "verb": "get",
        "group": "custom.metrics.k8s.io",
        "version": "v1beta2",
        "resource": "services.example",
        "namespace": "ns",
        "name": "llama",
        "subresource": "tandem_replicas_needed",
    }
    proxy = {
        "verb": "create",
        "group": "",
        "version": "v1",
        "resource": "services",
        "namespace": "ns",
        "name": "llama-triton",
        "subresource": "proxy",
    }
    listed = {
        "verb": "list",
        "group": "serving.tandem.dev",
        "version": "v1alpha1",
        "resource": "speculativeinferenceservices",
        "namespace": "",
        "name": "",
        "subresource": "",
    }
    assert reviews.asked == [
        {**who, "resourceAttributes": metric},
        {**who, "nonResourceAttributes": {"verb": "get", "path": "/v1/services"}},
        {**who, "resourceAttributes": proxy},
        {**who, "resourceAttributes": listed},
    ]


async def test_an_answer_is_kept_for_that_user_and_request_alone() -> None:
    reviews = Reviews({"allowed": True})
    authorizer = Authorizer(reviews)
    for _ in range(2):
        assert await authorizer.allows(ASKS, METRIC)
    assert len(reviews.asked) == 1
    reviews.status = {"allowed": False}
    others = [(replace(ASKS, groups=()), METRIC), (ASKS, replace(METRIC, namespace="other"))]
    for user, request in others:
        assert not await authorizer.allows(user, request), "the same name in other groups; another namespace"
