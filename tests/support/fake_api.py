"""An API server as a dictionary, behind the calls of `tandem.cluster.client.Api` that observing and applying make."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tandem.api.wire import Object
from tandem.cluster.kinds import EVENT, Kind
from tandem.errors import TandemError


class FakeApi:
    """`refusals`: what is raised, by verb (`list`, `get`, `apply`, `delete`, `create`) and kind."""

    def __init__(
        self, objects: Iterable[Object] = (), refusals: Mapping[tuple[str, str], TandemError] = MappingProxyType({})
    ) -> None:
        self.objects = {(str(obj["kind"]), str(obj["metadata"]["name"])): obj for obj in objects}
        self.refusals = refusals
        self.requests: list[tuple[str, str]] = []
        """Verb and kind of each."""
        self.lists = set[tuple[str, str]]()
        """Namespaces and selectors of the lists."""
        self.bodies: list[Object] = []
        """What was written."""

    def now(self) -> str:
        """As `Api.now`."""
        return "2026-01-01T00:01:00Z"

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """As `Api.get`. All that is asked for has a namespace, whichever it is."""
        self._ask("get", kind)
        return self.objects.get((kind.kind, name)) if namespace else None

    async def list_objects(self, kind: Kind, namespace: str, selector: str = "") -> list[Object]:
        """As `Api.list_objects`; the selector is not looked at."""
        self._ask("list", kind)
        self.lists.add((namespace, selector))
        return [obj for (found, _), obj in self.objects.items() if found == kind.kind]

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """As `Api.events`."""
        self._ask("list", EVENT)
        assert namespace
        found = [obj for (kind, _), obj in self.objects.items() if kind == EVENT.kind]
        return [event for event in found if event["involvedObject"]["uid"] == uid]

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """As `Api.apply`."""
        return self._write("apply", kind, manifest)

    async def replace_managers(self, kind: Kind, live: Object, entries: Sequence[Object]) -> Object:
        """As `Api.replace_managers`."""
        self._ask("own", kind)
        version = str(int(live["metadata"].get("resourceVersion", "0")) + 1)
        meta = {**live["metadata"], "managedFields": list(entries), "resourceVersion": version}
        return {**live, "metadata": meta}

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """As `Api.create`."""
        return self._write("create", kind, manifest)

    async def create_once(self, kind: Kind, manifest: Object) -> bool:
        """As `Api.create_once`, where there is none."""
        self._write("create", kind, manifest)
        return True

    async def delete(self, kind: Kind, live: Object) -> None:
        """As `Api.delete`."""
        self._write("delete", kind, live)

    def _write(self, verb: str, kind: Kind, body: Any) -> Object:
        self._ask(verb, kind)
        self.bodies.append(body)
        return dict(body)

    def _ask(self, verb: str, kind: Kind) -> None:
        self.requests.append((verb, kind.kind))
        if refusal := self.refusals.get((verb, kind.kind)):
            raise refusal
