"""Reading what the checks look at, by kubectl; what may not be read is noted as such."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tandem.api import GROUP, PLURAL
from tandem.api.types import SpeculativeInferenceService
from tandem.cli.doctor.cluster import DEFINITIONS, RIGHTS
from tandem.cli.doctor.facts import ClusterFacts, Listed, One, Right, Unread
from tandem.cli.doctor.references import CONFIGMAP, SECRET, named
from tandem.cli.known_settings import SELECTOR, known_settings
from tandem.cli.live import parse
from tandem.client import kubectl
from tandem.render.latest import claim_name
from tandem.settings import Settings, load_settings

AT_ONCE = 8
"""kubectls that run at once."""
Answer = TypeVar("Answer")


async def read(name: str, namespace: str | None, settings_file: Path | None) -> ClusterFacts:
    """The facts; of the service `name` too, where that is not empty.

    Raises:
        kubectl.ClusterError: no cluster answers, or the service is not there.
        SettingsError: the settings cannot be parsed.
    """
    place = ["--namespace", namespace] if namespace else []
    version = kubectl.parsed(await kubectl.kubectl("version", "--output=json"))
    service = parse(await kubectl.get(f"{PLURAL}.{GROUP}", name, *place)) if name else None
    if service:
        place = ["--namespace", service.namespace]
    reader = _Reader(place)
    (definitions, operators, api), (classes, nodes, quotas), rights = await asyncio.gather(
        asyncio.gather(
            reader.each("customresourcedefinitions", DEFINITIONS),
            reader.listed("deployments", "--all-namespaces", "--selector", SELECTOR),
            reader.one("apiservices", kubectl.API_SERVICE),
        ),
        asyncio.gather(
            reader.listed("storageclasses"), reader.listed("nodes"), reader.listed("resourcequotas", *place)
        ),
        reader.rights(),
    )
    facts = ClusterFacts(version, definitions, operators, api, classes, nodes, quotas, rights)
    return await _of_service(facts, service, reader, await known_settings(settings_file)) if service else facts


async def _of_service(
    facts: ClusterFacts, service: SpeculativeInferenceService, reader: "_Reader", settings: Settings | None
) -> ClusterFacts:
    wanted = named(service.spec)
    of = {kind: [each.name for each in wanted if each.kind == kind] for kind in (SECRET, CONFIGMAP)}
    secrets, configmaps, claim = await asyncio.gather(
        reader.each("secrets", of[SECRET]),
        reader.each("configmaps", of[CONFIGMAP]),
        reader.one("persistentvolumeclaims", claim_name(service.spec)),
    )
    profile = (settings or load_settings()).profile(service.spec.runtime.profile)
    return replace(facts, service=service, profile=profile, secrets=secrets, configmaps=configmaps, claim=claim)


class _Reader:
    """kubectl, a few at a time, in a namespace."""

    def __init__(self, place: list[str]) -> None:
        self._place = place
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def listed(self, *arguments: str) -> Listed:
        return await self._noted(kubectl.listed(*arguments))

    async def one(self, kind: str, name: str) -> One:
        words = ("get", kind, name, *self._place, "--ignore-not-found", "--output=json", "--request-timeout=15s")
        text = await self._noted(kubectl.kubectl(*words))
        if isinstance(text, Unread):
            return text
        return kubectl.parsed(text) if text.strip() else None

    async def each(self, kind: str, names: Iterable[str]) -> dict[str, One]:
        names = [*dict.fromkeys(names)]
        return dict(zip(names, await asyncio.gather(*(self.one(kind, name) for name in names)), strict=True))

    async def rights(self) -> dict[Right, bool | None]:
        return dict(zip(RIGHTS, await asyncio.gather(*(self._right(right) for right in RIGHTS)), strict=True))

    async def _right(self, right: Right) -> bool | None:
        resource, _, subresource = right.resource.partition("/")
        named = f"{resource}.{right.group}" if right.group else resource
        async with self._gate:
            answer = await kubectl.run(
                "auth", "can-i", right.verb, named, f"--subresource={subresource}", *self._place
            )
        return {"yes": True, "no": False}.get(answer.out.strip().partition(" ")[0])

    async def _noted(self, asked: Awaitable[Answer]) -> Answer | Unread:
        async with self._gate:
            try:
                return await asked
            except kubectl.ClusterError as error:
                return Unread(str(error))
