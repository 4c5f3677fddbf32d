"""Reading objects without kubectl: it takes 60 ms of a core each time, and who waits asks ten times a second."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from cluster.errors import ClusterError

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""All that the API server serves, in one answer (KEP-3352, aggregated discovery)."""
WAITS = (500, 502, 503, 504)
"""Answers of an API server that waits for its storage."""


@dataclass(frozen=True)
class Kind:
    """A kind of object, and where the API server has it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """The URL's path of an object, or of all; without a namespace, of all namespaces."""
        root = "/api" if "/" not in self.api_version else "/apis"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}/{self.api_version}{scope}/{self.plural}" + (f"/{name}" if name else "")


def shown(item: dict[str, Any]) -> dict[str, Any]:
    """An object as kubectl shows it."""
    item["metadata"].pop("managedFields", None)
    return item


class Reader:
    """Reads as the cluster's administrator; kinds are named as kubectl names them (`sis`, `deploy`, `services`).

    Args:
        server: URL of the API server.
        pki: the folder of the cluster's keys and certificates.
    """

    def __init__(self, server: str, pki: Path) -> None:
        self._server = server
        self._pool = urllib3.PoolManager(
            ca_certs=str(pki / "ca.crt"),
            cert_file=str(pki / "client-kubernetes-admin.crt"),
            key_file=str(pki / "client-kubernetes-admin.key"),
            # As client-go: an answer with Retry-After is asked for ten times more. A new definition's kind is
            # answered 429 until its storage is there.
            retries=urllib3.Retry(
                10, connect=1, read=3, other=1, status_forcelist=WAITS, backoff_factor=0.1, backoff_max=2
            ),
            timeout=30,
        )
        self._kinds: dict[str, Kind] = {}

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Return an object, without its managed fields; None when there is none.

        Raises:
            ClusterError: when the API server does not answer, or has no such kind.
        """
        found = self._ask(self._kind(kind).path(namespace, name))
        return found and shown(found)

    def items(self, kinds: str, namespace: str = "default", selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of kinds (separated by commas) that carry the labels of `selector`.

        An empty namespace means all of them.

        Raises:
            ClusterError: when the API server does not answer, or has no such kind.
        """
        found = []
        for kind in map(self._kind, kinds.split(",")):
            answer = self._ask(kind.path(namespace), labelSelector=selector)
            # The items of a list do not say what they are.
            own = {"apiVersion": kind.api_version, "kind": kind.kind}
            found += [own | shown(item) for item in (answer or {"items": []})["items"]]
        return found

    def _kind(self, word: str) -> Kind:
        if word not in self._kinds:
            self._discover()
        try:
            return self._kinds[word]
        except KeyError:
            raise ClusterError(f"the API server has no resource type {word!r}: install its definition") from None

    def _discover(self) -> None:
        for root in ("/api", "/apis"):
            for group in (self._ask(root, accept=DISCOVERY) or {"items": []})["items"]:
                preferred = group["versions"][0]
                version = "/".join(filter(None, (group["metadata"].get("name", ""), preferred["version"])))
                for resource in preferred.get("resources", ()):  # none of an aggregated API that does not answer
                    plural, kind = resource["resource"], resource["responseKind"]["kind"]
                    found = Kind(version, kind, plural, resource["scope"] == "Namespaced")
                    for word in (plural, resource.get("singularResource", ""), *resource.get("shortNames", ())):
                        self._kinds.setdefault(word, found)  # core's win, as with kubectl

    def _ask(self, path: str, accept: str = "application/json", **query: str) -> dict[str, Any] | None:
        fields = {key: value for key, value in query.items() if value}
        try:
            answer = self._pool.request("GET", self._server + path, fields=fields, headers={"Accept": accept})
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"GET {path}: {error}; `python -m cluster status` tells what runs") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ClusterError(f"GET {path}: {answer.status} {answer.data.decode(errors='replace')}")
        found: dict[str, Any] = json.loads(answer.data)
        return found
