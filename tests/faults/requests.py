"""What a request asks the API server for, by its method and URL."""

import re
from dataclasses import dataclass
from typing import Any

from yarl import URL

PATH = re.compile(
    r"/(?:api|apis/[^/]+)/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<subresource>[a-z]+))?)?$"
)
VERBS = {"POST": "create", "PATCH": "apply", "PUT": "replace", "DELETE": "delete"}
WRITES = tuple(VERBS.values())
SHORT = {
    "speculativeinferenceservices": "sis",
    "speculativeinferenceservices/status": "status",
    "serviceaccounts": "sa",
    "poddisruptionbudgets": "pdb",
    "horizontalpodautoscalers": "hpa",
    "networkpolicies": "netpol",
}
HASH = re.compile(r"[0-9a-f]{10}$")


@dataclass(frozen=True)
class Request:
    """A request; all requests that a service's reference run makes again have the same."""

    verb: str
    """get, list, watch, create, apply, replace, delete; other: of none of the cluster's objects."""
    resource: str = ""
    """Plural, short where it is long, with its subresource."""
    role: str = ""
    """The object's name, less the service's and digests: `server`, `triton`, `preflight`, `revision`."""

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.verb in WRITES

    def __str__(self) -> str:
        return "-".join(part for part in (self.verb, self.resource, self.role) if part)


def role(name: str) -> str:
    """A child's name less what differs from service to service, and from one specification to the next."""
    if "." in name:  # an Event's
        return ""
    plain = HASH.sub("", name)
    plain = plain.removeprefix("svc").strip("-")
    return plain or ("revision" if HASH.search(name) else "")


def parse(method: str, url: URL, body: dict[str, Any] | None = None) -> Request:
    """The request of that method and URL; what is created has its name in its body."""
    found = PATH.match(url.path)
    if not found:
        return Request("other")
    plural = "/".join(part for part in (found["resource"], found["subresource"]) if part)
    resource = SHORT.get(plural, plural)
    if method == "GET" and not found["name"]:
        return Request("watch" if "watch" in url.query else "list", resource)
    name = found["name"] or ((body or {}).get("metadata") or {}).get("name", "")
    if resource in ("leases", "events", "sis", "status"):
        name = ""
    return Request(VERBS.get(method, "get"), resource, role(name))
