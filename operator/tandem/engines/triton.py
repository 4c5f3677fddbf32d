"""Releases of Triton, by image. Pure."""

import re

from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec

COLLECTS_SINCE = "25.04"  # errors have their call's id: `InferResponse::SaveToSharedMemory` of the Python backend
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
