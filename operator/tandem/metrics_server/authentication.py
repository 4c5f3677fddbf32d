"""Who asks: delegated to the cluster, as Kubernetes' own extension API servers do it.

Two ways in. The API server forwards requests and says for whom (`X-Remote-User`, ...); it is believed when the
connection's certificate was signed by the request-header authority and carries an allowed name. Everybody else
shows a bearer token, which the API server reviews. No client is anonymous.
https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer

About strangers' tokens the API server is asked so often and no more (`rate_limit`).

A token must be for this server (`AUDIENCE`): whoever gets hold of such a one can do nothing else with it. One for the
API server, as pods have it by default, is refused, so that no client sends it here.
https://kubernetes.io/docs/concepts/storage/projected-volumes/#serviceaccounttoken
https://keda.sh/docs/latest/authentication-providers/bound-service-account-token/
"""

import hashlib
import json
import time
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tandem.api.wire import Object
from tandem.cluster.kinds import TOKEN_REVIEW, Kind
from tandem.metrics_server.cache import TokenCache
from tandem.metrics_server.rate_limit import RateLimit

CACHE_SECONDS, CACHE_SIZE = 10.0, 1024
KNOWN_SECONDS = 3600.0
"""So long a token that was taken is none of a stranger: its client shows it again and again."""
ANONYMOUS, AUTHENTICATED = "system:anonymous", "system:authenticated"
AUDIENCE = "metrics.serving.tandem.dev"
"""Audience of tokens that are for Tandem's metrics servers alone."""
Peer = Mapping[str, Any]
"""A verified client certificate as `ssl.SSLSocket.getpeercert` returns it; empty: none was shown."""


class Headers(Protocol):
    """The headers of a request; names in any case."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """All values of a header."""

    def __iter__(self) -> Iterator[str]:
        """Names of the headers, as often as they came."""


class Reviewer(Protocol):
    """What asks the API server; see `tandem.cluster.client.Api`."""

    async def review(self, kind: Kind, spec: Object) -> Object:
        """The `status` of a review."""


@dataclass(frozen=True)
class User:
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further attributes, by key."""


@dataclass(frozen=True)
class RequestHeader:
    """How the API server says for whom it asks: ConfigMap `extension-apiserver-authentication` in `kube-system`."""

    authorities: str = ""
    """PEM; empty: no authority is trusted."""
    allowed_names: tuple[str, ...] = ()
    """Common names of its certificate; empty: any."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def parse(cls, configmap: Object | None) -> "RequestHeader":
        """Read the ConfigMap; one that is missing or malformed lets no client act for others."""
        data = (configmap or {}).get("data") or {}
        try:
            names = {
                field: tuple(str(item) for item in json.loads(data[key]))
                for field, key in (
                    ("allowed_names", "requestheader-allowed-names"),
                    ("user_headers", "requestheader-username-headers"),
                    ("uid_headers", "requestheader-uid-headers"),
                    ("group_headers", "requestheader-group-headers"),
                    ("extra_prefixes", "requestheader-extra-headers-prefix"),
                )
                if key in data
            }
        except (ValueError, TypeError):
            return cls()
        return cls(authorities=str(data.get("requestheader-client-ca-file", "")), **names)

    def user(self, peer: Peer, headers: Headers) -> User | None:
        """For whom the API server asks; None when it is not the API server that asks."""
        if not (self.authorities and peer) or not self._allowed(peer):
            return None
        name = next((v for header in self.user_headers for v in headers.getall(header, ()) if v), "")
        if not name:
            return None
        uid = next((v for header in self.uid_headers for v in headers.getall(header, ()) if v), "")
        groups = tuple(v for header in self.group_headers for v in headers.getall(header, ()) if v)
        return User(name, uid, groups, self._extra(headers))

    def _allowed(self, peer: Peer) -> bool:
        fields = (field for name in peer.get("subject", ()) for field in name)
        names = {value for key, value in fields if key == "commonName"}
        return not self.allowed_names or not names.isdisjoint(self.allowed_names)

    def _extra(self, headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, tuple[str, ...]] = {}
        for prefix in self.extra_prefixes:
            for header in dict.fromkeys(name.lower() for name in headers):
                if header.startswith(prefix.lower()):
                    key = urllib.parse.unquote(header[len(prefix) :])
                    found[key] = (*found.get(key, ()), *headers.getall(header, ()))
        return tuple(sorted(found.items()))


class TooManyStrangers(Exception):
    """More unknown tokens than the API server is asked about."""


class Authenticator:
    """Identifies the client. `request_header` is replaced when the cluster's configuration changes."""

    def __init__(self, api: Reviewer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._tokens: TokenCache[User | None] = TokenCache(CACHE_SECONDS, CACHE_SIZE, clock)
        self._known: OrderedDict[bytes, float] = OrderedDict()
        """Tokens that were taken, and when."""
        self._strangers = RateLimit(clock)
        self.request_header = RequestHeader()

    async def user(self, peer: Peer, headers: Headers, address: str) -> User | None:
        """The client's user; None when the cluster does not know it. `address`: where it asks from.

        Raises:
            TooManyStrangers: the token is not known, and too many of that address, or of all, were asked about.
            Transient, Refused: the API server cannot be asked.
        """
        if user := self.request_header.user(peer, headers):
            return None if user.name == ANONYMOUS else _in_group(user)
        scheme, _, token = next(iter(headers.getall("Authorization", ())), "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
            return None
        return await self._by_token(token.strip(), address)

    async def _by_token(self, token: str, address: str) -> User | None:
        async def ask() -> User | None:
            status = await self._api.review(TOKEN_REVIEW, {"token": token, "audiences": [AUDIENCE]})
            # An authenticator that knows nothing of audiences leaves them out: it did not judge this.
            return _user(status) if AUDIENCE in (status.get("audiences") or ()) else None

        # Not the token itself: nothing that gives rights stays in memory.
        key = hashlib.sha256(token.encode()).digest()
        if key not in self._tokens and not self._is_known(key) and not self._strangers.allows(address):
            raise TooManyStrangers
        user = await self._tokens.get(key, ask)
        self._remember(key, user)
        return user

    def _is_known(self, key: bytes) -> bool:
        taken = self._known.get(key)
        return taken is not None and self._clock() < taken + KNOWN_SECONDS

    def _remember(self, key: bytes, user: User | None) -> None:
        if user is None:
            self._known.pop(key, None)
            return
        self._known[key] = self._clock()
        self._known.move_to_end(key)
        while len(self._known) > CACHE_SIZE:
            self._known.popitem(last=False)


def _in_group(user: User) -> User:
    """With the group of all who are somebody, which the aggregator's own requests (discovery, OpenAPI) come without.

    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#discovery-roles
    """
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))


def _user(status: Object) -> User | None:
    if not status.get("authenticated") or status.get("error"):
        return None
    user = status.get("user") or {}
    extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
    name = user.get("username", "")
    return (
        User(name, user.get("uid", ""), tuple(user.get("groups") or ()), tuple(sorted(extra.items())))
        if name
        else None
    )
