"""Strategic merge patches of a pod template, by the API server's rules. Pure.

Mappings are merged, null removes, lists are replaced, except those that Kubernetes' API types mark with
`patchMergeKey`: their items are merged by that key. Directives (`$patch`, `$setElementOrder`, ...) are not known
here: callers refuse them.

https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from collections.abc import Mapping, Sequence
from typing import Any

_CONTAINER = {"env": "name", "ports": "containerPort", "volumeDevices": "devicePath", "volumeMounts": "mountPath"}
MERGE_KEYS: Mapping[str, str] = {
    "spec.containers": "name",
    **{f"spec.containers.{field}": key for field, key in _CONTAINER.items()},
    "spec.initContainers": "name",
    **{f"spec.initContainers.{field}": key for field, key in _CONTAINER.items()},
    "spec.hostAliases": "ip",
    "spec.imagePullSecrets": "name",
    "spec.resourceClaims": "name",
    "spec.schedulingGates": "name",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.volumes": "name",
}
"""`patchMergeKey` of the lists of a PodTemplateSpec (k8s.io/api core/v1 types.go, 1.36), by dotted path."""


def merge(template: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The PodTemplateSpec `template` with the strategic merge patch `patch` applied; neither is changed."""
    return _mapping(template, patch, "")


def _mapping(base: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(base)
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        else:
            merged[field] = _value(merged.get(field), value, f"{path}.{field}" if path else field)
    return merged


def _value(base: Any, patch: Any, path: str) -> Any:
    if isinstance(patch, Mapping):
        return _mapping(base if isinstance(base, Mapping) else {}, patch, path)
    if isinstance(patch, Sequence) and not isinstance(patch, str) and path in MERGE_KEYS:
        return _list(base if isinstance(base, Sequence) else [], patch, path)
    return patch


def _list(base: Sequence[Any], patch: Sequence[Any], path: str) -> list[Any]:
    """Items merged by key. Those of the patch keep its order and come as early as they can, new ones first."""
    key = MERGE_KEYS[path]
    place = {item.get(key): index for index, item in enumerate(base)}
    patched = {item.get(key) for item in patch}
    rest = [item for item in base if item.get(key) not in patched]
    merged: list[Any] = []
    for item in patch:
        at = place.get(item.get(key))
        while at is not None and rest and place[rest[0].get(key)] < at:
            merged.append(rest.pop(0))
        merged.append(_mapping({} if at is None else base[at], item, path))
    return merged + rest
