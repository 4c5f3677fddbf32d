"""What somebody else does to a service's objects."""

import json
from collections.abc import Iterator
from typing import Any

from tandem.children.comparison import owned_fields

from .requests import role
from .scenarios import Step, scale
from .world import JSON_PATCH, KINDS, Refused, World

SOMEBODY = "somebody"
"""A field manager."""


def child(world: World, resource: str, wanted: str) -> dict[str, Any]:
    """A child by its plural and role; an empty role: any."""
    kind = KINDS[resource].kind
    return next(obj for obj in world.scene.of(kind) if wanted in ("", role(obj["metadata"]["name"])))


def delete_child(resource: str, wanted: str) -> Step:
    """Delete a child."""

    async def step(world: World) -> None:
        name = child(world, resource, wanted)["metadata"]["name"]
        before = child(world, resource, wanted)["metadata"]["uid"]
        await world.delete(resource, name)
        await world.until(
            "it to be gone",
            lambda: all(obj["metadata"]["uid"] != before for obj in world.scene.of(KINDS[resource].kind)),
        )

    return step


def change_fields(resource: str, wanted: str) -> Step:
    """Remove or change each field of a child that is ours, one after the other, each once the last is as it was, and
    ours again."""

    async def step(world: World) -> None:
        key = f"{KINDS[resource].kind}/{child(world, resource, wanted)['metadata']['name']}"
        before, changed = world.state()[key], 0
        ours = list(pointers(child(world, resource, wanted)))
        for pointer in ours:
            if not (version := await _change(world, resource, wanted, pointer)):
                continue  # the API server lets nobody change it
            changed += 1
            await world.until(
                f"{pointer} to be changed and repaired",
                lambda version=version: (  # type: ignore[misc]
                    int(child(world, resource, wanted)["metadata"]["resourceVersion"]) > version
                    and world.state()[key] == before
                    and list(pointers(child(world, resource, wanted))) == ours
                ),
            )
        assert changed, "the API server lets nobody change anything"

    return step


async def _change(world: World, resource: str, wanted: str, pointer: str) -> int:
    """The resourceVersion with which a field was removed, or got another value; 0: it was not.

    Of a field that is removed and has that value by default, the API server changes neither the value nor the owner.
    """
    path = world.path(resource, child(world, resource, wanted)["metadata"]["name"])
    value = at(await world.kubernetes.ask("GET", path), pointer)
    others: list[dict[str, Any]] = [{"op": "remove", "path": pointer}]
    if isinstance(value, int | str):
        others.insert(0, {"op": "replace", "path": pointer, "value": _other(value)})
    for operation in others:
        try:
            found = await world.kubernetes.ask("PATCH", path, [operation], content=JSON_PATCH, fieldManager=SOMEBODY)
        except Refused:
            continue
        if at(found, pointer) != value or pointer not in pointers(found):
            return int(found["metadata"]["resourceVersion"])
    return 0


def _other(value: int | str) -> int | str:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


def at(obj: Any, pointer: str) -> Any:
    """What a JSON pointer leads to; None where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            obj = obj[int(key)] if isinstance(obj, list) else obj[key]
        except (KeyError, IndexError):
            return None
    return obj


def pointers(obj: dict[str, Any]) -> Iterator[str]:
    """JSON pointers of the fields that Tandem manages, leaves alone; without those that tell a list's items apart.

    An item with another such value is another item, and its maker's: server-side apply leaves it there.
    """
    yield from _pointers(obj, owned_fields(obj), "")


def _pointers(obj: Any, fields: dict[str, Any], path: str) -> Iterator[str]:
    inner = {key: value for key, value in fields.items() if key != "."}
    if not inner:
        yield path
    for key, below in inner.items():
        name = _step(obj, key)
        if name is None:
            continue
        keys = json.loads(key[2:]) if key.startswith("k:") else {}
        others = {each: more for each, more in below.items() if each[2:] not in keys}
        escaped = str(name).replace("~", "~0").replace("/", "~1")
        yield from _pointers(obj[name], others, f"{path}/{escaped}")


def _step(obj: Any, key: str) -> str | int | None:
    """The key of a map, or number of a list's item, that a part of FieldsV1 names; None: it is a set's."""
    if key.startswith("f:"):
        return key[2:] if isinstance(obj, dict) and key[2:] in obj else None
    if key.startswith("k:") and isinstance(obj, list):
        wanted = json.loads(key[2:])
        return next((n for n, item in enumerate(obj) if wanted.items() <= {**wanted, **item}.items()), None)
    return None


async def wipe_status(world: World) -> None:
    """As a tool that replaces the whole object, and knows no subresources."""
    path = world.path("sis", "svc", "status")
    await world.kubernetes.ask("PATCH", path, [{"op": "remove", "path": "/status"}], content=JSON_PATCH)


async def delete_namespace(world: World) -> None:
    """Delete all."""
    await world.kubernetes.ask("DELETE", f"/api/v1/namespaces/{world.name}")


async def pend_and_go_back(world: World) -> None:
    """Scale to what a quota does not let come up, and back."""
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    await world.kubernetes.ask("POST", f"/api/v1/namespaces/{world.name}/resourcequotas", quota)
    await scale(5)(world)
    await world.until(
        "the Deployment to ask for more", lambda: child(world, "deployments", "")["spec"]["replicas"] == 5
    )
    await world.settled()
    await scale(1)(world)
