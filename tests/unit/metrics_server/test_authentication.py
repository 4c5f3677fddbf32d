"""Who asks: what the API server says of others is believed of the API server alone."""

import base64
import json
from typing import Any

import pytest
from multidict import CIMultiDict

from tandem.metrics_server.authentication import (
    AUDIENCE,
    CACHE_SECONDS,
    Authenticator,
    RequestHeader,
    TooManyStrangers,
    User,
)
from tandem.metrics_server.rate_limit import ADDRESS_BURST, TOTAL_BURST, TOTAL_RATE

from . import conftest
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
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2"
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
    assert await authenticator.user(peer, CIMultiDict(headers), HERE) == who


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
        await authenticator.user({}, CIMultiDict(bearer("team-a-token")), HERE)
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
    assert await Authenticator(OneStatus(status)).user({}, CIMultiDict(bearer("token")), HERE) == user


class Strangers:
    """An authenticator at a time of the test's choice, and how many tokens the API server was asked about."""

    def __init__(self, reviews: FakeReviews) -> None:
        self.now = 0.0
        self.reviews = reviews
        self.authenticator = Authenticator(reviews, lambda: self.now)

    async def show(self, token: str, address: str) -> User | str | None:
        """The user; `refused` where nobody was asked."""
        try:
            return await self.authenticator.user({}, CIMultiDict(bearer(token)), address)
        except TooManyStrangers:
            return "refused"

    async def flood(self, number: int, address: str) -> int:
        """How many reviews so many different tokens cost."""
        before = len(self.reviews.asked)
        for each in range(number):
            await self.show(f"stranger-{self.now}-{address}-{each}", address)
        return len(self.reviews.asked) - before


async def test_strangers_cost_the_api_server_a_bounded_number_of_reviews(reviews: FakeReviews) -> None:
    strangers = Strangers(reviews)
    assert await strangers.flood(1000, HERE) == ADDRESS_BURST
    assert await strangers.show("one more", HERE) == "refused"
    asked = sum([await strangers.flood(20, f"10.0.1.{each}") for each in range(200)])
    assert ADDRESS_BURST + asked == TOTAL_BURST, "of all addresses together"
    strangers.now += 10
    assert sum([await strangers.flood(20, f"10.0.2.{each}") for each in range(200)]) == TOTAL_BURST
    strangers.now += 1
    assert sum([await strangers.flood(20, f"10.0.3.{each}") for each in range(200)]) == TOTAL_RATE


async def test_a_flood_does_not_hurt_known_tokens(reviews: FakeReviews) -> None:
    """Nor a new one of another address: the flood has its own address's share alone."""
    strangers = Strangers(reviews)
    assert await strangers.show("team-a-token", HERE) == BY_TOKEN
    await strangers.flood(5000, HERE)
    strangers.now += CACHE_SECONDS
    await strangers.flood(5000, HERE)
    assert await strangers.show("team-a-token", HERE) == BY_TOKEN, "it is asked about again"
    assert isinstance(await strangers.show("hpa-token", ELSEWHERE), User)


async def test_the_same_unknown_token_is_asked_about_once_in_a_while(reviews: FakeReviews) -> None:
    strangers = Strangers(reviews)
    for _ in range(100):
        assert await strangers.show("old-token", HERE) is None
    assert len(reviews.asked) == 1


async def test_a_token_that_was_revoked_is_a_strangers_again(reviews: FakeReviews, monkeypatch: Any) -> None:
    strangers = Strangers(reviews)
    assert await strangers.show("team-a-token", HERE) == BY_TOKEN
    monkeypatch.setattr(conftest, "TOKENS", {})
    strangers.now += CACHE_SECONDS
    assert await strangers.show("team-a-token", HERE) is None
    await strangers.flood(100, HERE)
    strangers.now += CACHE_SECONDS / 10
    assert await strangers.show("team-a-token", HERE) is None, "the answer is kept for seconds"
    await strangers.flood(100, HERE)
    strangers.now += CACHE_SECONDS
    await strangers.flood(100, HERE)
    assert await strangers.show("team-a-token", HERE) == "refused"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::1", True),
        ("", "", True),
    ],
    ids=["two pods", "two of a network's 2^64", "two networks", "IPv4 in IPv6", "a zone", "an odd transport"],
)
async def test_who_is_one_client(reviews: FakeReviews, one: str, other: str, same: bool) -> None:
    strangers = Strangers(reviews)
    await strangers.flood(100, one)
    assert await strangers.flood(100, other) == (0 if same else ADDRESS_BURST)
