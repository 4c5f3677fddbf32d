"""Volumes of the podTemplate that would undo what Tandem promises of pods: no token, models that nobody changes."""

from collections.abc import Iterator, Mapping
from typing import Any

from tandem import names
from tandem.api.types.placement import TemplateSpec


def volumes_that_undo(spec: TemplateSpec, cache: str) -> Iterator[str]:
    """What is wrong with the volumes, and what to write. `cache`: the claim of the service's cache."""
    for index, volume in enumerate(spec.volumes or []):
        where = f"spec.volumes[{index}]"
        if any("serviceAccountToken" in source for source in _sources(volume)):
            yield (
                f"{where}: serviceAccountToken would give the pods a token for the Kubernetes API, and servers have"
                " none: remove it"
            )
        claim = _mapping(volume.get("persistentVolumeClaim"))
        if claim.get("claimName") in (cache, names.CACHE_CLAIM) and not claim.get("readOnly"):
            yield (
                f"{where}: the claim {claim['claimName']} is the cache of models and engines, which servers may not"
                " change: write persistentVolumeClaim.readOnly: true"
            )


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = _mapping(volume.get("projected")).get("sources")
    return [_mapping(source) for source in listed] if isinstance(listed, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
