"""Who asks: delegated to the cluster, as Kubernetes' own extension API servers do it.

Two ways in. The API server forwards requests and says for whom (`X-Remote-User`, ...); it is believed when the
connection's certificate was signed by the request-header authority and carries an allowed name. Everybody else
shows a bearer token, which the API server reviews. No client is anonymous.
https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer

A token must be for this server (`AUDIENCE`): whoever gets hold of such a one can do nothing else with it. One for the
API server, as pods have it by default, is refused, so that no client sends it here.
https://kubernetes.io/docs/concepts/storage/projected-volumes/#serviceaccounttoken
https://keda.sh/docs/latest/authentication-providers/bound-service-account-token/
"""

import hashlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tandem.api.wire import Object
from tandem.cluster.kinds import TOKEN_REVIEW, Kind
from tandem.metrics_server.cache import TokenCache

CACHE_SECONDS, CACHE_SIZE = 10.0, 1024
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


class Authenticator:
    """Identifies the client. `request_header` is replaced when the cluster's configuration changes."""

    def __init__(self, api: Reviewer) -> None:
        self._api = api
        self._tokens: TokenCache[User | None] = TokenCache(CACHE_SECONDS, CACHE_SIZE)
        self.request_header = RequestHeader()

    async def user(self, peer: Peer, headers: Headers) -> User | None:
        """The client's user; None when the cluster does not know it.

        Raises:
            Transient, Refused: the API server cannot be asked.
        """
        if user := self.request_header.user(peer, headers):
            return None if user.name == ANONYMOUS else _in_group(user)
        scheme, _, token = next(iter(headers.getall("Authorization", ())), "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
            return None
        return await self._by_token(token.strip())

    async def _by_token(self, token: str) -> User | None:
        async def ask() -> User | None:
            status = await self._api.review(TOKEN_REVIEW, {"token": token, "audiences": [AUDIENCE]})
            # An authenticator that knows nothing of audiences leaves them out: it did not judge this.
            return _user(status) if AUDIENCE in (status.get("audiences") or ()) else None

        # Not the token itself: nothing that gives rights stays in memory.
        return await self._tokens.get(hashlib.sha256(token.encode()).digest(), ask)


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
