"""Releases of Triton, by image, and what they can do. Pure."""

import re

from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.engines.engine import Engine
from tandem.engines.rule import Refusal

_COLLECTS_SINCE = "25.04"  # errors have their call's id: `InferResponse::SaveToSharedMemory` of the Python backend
_NVIDIA_IMAGE = re.compile(r"(?:^|/)tritonserver:(\d{2}\.\d{2})(?![\d.])")
"""NVIDIA's images, and copies of them in other registries, have the release in their tag."""


def triton_release(spec: ServiceSpec, profile: Profile) -> str:
    """Release of Triton in the image that serves, such as 26.07; empty: not known.

    It is in the tags of NVIDIA's images; of others the profile says it, but not of what `runtime.image` replaces.
    """
    if found := _NVIDIA_IMAGE.search(spec.runtime.image or profile.image):
        return found[1]
    return "" if own_image(spec, profile) else profile.triton_version


def own_image(spec: ServiceSpec, profile: Profile) -> str:
    """The service's image where it is not the profile's; empty: the profile's serves."""
    return "" if spec.runtime.image == profile.image else spec.runtime.image


def release(version: str) -> tuple[int, ...]:
    """For comparison."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def collects(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    """Mode BLS: a rule of engines that may answer the sequences of a call one by one."""
    version = triton_release(spec, engine.profile)
    asked = engine.calls == "Collected" and spec.draft is not None
    if not asked or not version or release(version) >= release(_COLLECTS_SINCE):
        return None
    return Refusal(
        SpecReason.ENGINE_CALLS_NOT_IN_TRITON,
        f"profile {engine.profile.name!r} has engine.calls Collected, and the image has Triton {version}: before"
        f" {_COLLECTS_SINCE} an error of one sequence loses the answers of the others; set the profile's engine.calls"
        " to Single in the Helm value `profiles`, or write another profile",
    )
