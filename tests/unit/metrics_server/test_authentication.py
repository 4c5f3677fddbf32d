"""Who asks: what the API server says of others is believed of the API server alone."""

import base64
import json
from typing import Any

import pytest
from multidict import CIMultiDict

from tandem.metrics_server.authentication import AUDIENCE, Authenticator, RequestHeader, User

from .conftest import KEDA, FakeReviews

CONFIGMAP = {
    "data": {
        "client-ca-file": "another authority",
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front-proxy"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
}
FRONT_PROXY = {"subject": ((("organizationName", "x"),), (("commonName", "front-proxy"),))}
OTHER = {"subject": ((("commonName", "somebody"),),)}
FOR_ALICE = [
    ("X-Remote-User", "alice"),
    ("x-remote-group", "team-a"),
    ("X-Remote-Group", "system:authenticated"),
    ("X-Remote-Extra-Acme.Com%2fproject", "p"),
]
ALICE = User("alice", "", ("team-a", "system:authenticated"), (("acme.com/project", ("p",)),))
BY_TOKEN = User("alice", "u1", ("team-a",), (("scopes", ("x",)),))


def bearer(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}")]


CASES: list[tuple[str, dict[str, Any], list[tuple[str, str]], User | None]] = [
    # why, the connection's certificate, headers, who
    ("the API server speaks for alice", FRONT_PROXY, FOR_ALICE, ALICE),
    (
        "the API server for itself, in no group",
        FRONT_PROXY,
        [("X-Remote-User", "system:aggregator")],
        User("system:aggregator", groups=("system:authenticated",)),
    ),
    (
        "the API server for nobody in particular",
        FRONT_PROXY,
        [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")],
        None,
    ),
    ("headers without a certificate are a forgery", {}, FOR_ALICE, None),
    ("a name that is not allowed", OTHER, FOR_ALICE, None),
    ("the API server for nobody", FRONT_PROXY, FOR_ALICE[1:], None),
    ("a token", {}, bearer("team-a-token"), BY_TOKEN),
    ("a token wins over forged headers", {}, [("X-Remote-User", "admin"), *bearer("team-a-token")], BY_TOKEN),
    ("the scheme is written in any case", {}, [("Authorization", "bearer team-a-token")], BY_TOKEN),
    ("a token for others too", {}, bearer("keda-token"), User(KEDA["username"], groups=tuple(KEDA["groups"]))),
    ("one for the API server", {}, bearer("cluster-wide"), None),
    ("one of which nobody says for whom it is", {}, bearer("careless-token"), None),
    ("an expired token", {}, bearer("old-token"), None),
    ("a token of nobody", {}, bearer("nameless-token"), None),
    ("no token", {}, bearer(""), None),
    ("a password", {}, [("Authorization", "Basic " + base64.b64encode(b"a:b").decode())], None),
    ("nothing", {}, [], None),
]


@pytest.mark.parametrize(("peer", "headers", "who"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
async def test_who_asks(
    reviews: FakeReviews, peer: dict[str, Any], headers: list[tuple[str, str]], who: User | None
) -> None:
    authenticator = Authenticator(reviews)
    authenticator.request_header = RequestHeader.parse(CONFIGMAP)
    assert await authenticator.user(peer, CIMultiDict(headers)) == who


MALFORMED: list[tuple[str, Any]] = [
    ("no ConfigMap", None),
    ("an empty one", {"data": {}}),
    ("no data", {}),
    ("names that are no JSON", {"data": {**CONFIGMAP["data"], "requestheader-allowed-names": "front-proxy"}}),
    ("names that are no list", {"data": {**CONFIGMAP["data"], "requestheader-username-headers": "1"}}),
]


@pytest.mark.parametrize("configmap", [c[1] for c in MALFORMED], ids=[c[0] for c in MALFORMED])
def test_a_malformed_configuration_lets_nobody_speak_for_others(configmap: Any) -> None:
    assert RequestHeader.parse(configmap).user(FRONT_PROXY, CIMultiDict(FOR_ALICE)) is None


def test_no_allowed_names_means_any_name() -> None:
    data = {**CONFIGMAP["data"], "requestheader-allowed-names": json.dumps([])}
    request_header = RequestHeader.parse({"data": data})
    user = request_header.user(OTHER, CIMultiDict(FOR_ALICE))
    assert user is not None
    assert user.name == "alice"
    assert request_header.user({}, CIMultiDict(FOR_ALICE)) is None, "but a certificate"


async def test_a_token_is_reviewed_once_within_seconds_and_kept_nowhere(reviews: FakeReviews) -> None:
    authenticator = Authenticator(reviews)
    for _ in range(3):
        await authenticator.user({}, CIMultiDict(bearer("team-a-token")))
    assert len(reviews.asked) == 1
    assert "team-a-token" not in repr(vars(authenticator._tokens))


class OneStatus:
    """Answers every review of a token alike."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status

    async def review(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        return self.status


ANN, OURS = {"username": "ann"}, {"audiences": [AUDIENCE]}
STATUSES: list[tuple[str, dict[str, Any], User | None]] = [
    ("somebody", {"authenticated": True, "user": ANN, **OURS}, User("ann")),
    ("nobody", {"authenticated": False, "user": ANN, **OURS}, None),
    ("it could not be checked", {"authenticated": True, "error": "no issuer", "user": ANN, **OURS}, None),
    ("somebody without a name", {"authenticated": True, "user": {"groups": ["team-a"]}, **OURS}, None),
    ("nothing of audiences", {"authenticated": True, "user": ANN}, None),
]


@pytest.mark.parametrize(("status", "user"), [s[1:] for s in STATUSES], ids=[s[0] for s in STATUSES])
async def test_what_a_review_of_a_token_means(status: dict[str, Any], user: User | None) -> None:
    assert await Authenticator(OneStatus(status)).user({}, CIMultiDict(bearer("token"))) == user
