"""Can the profile run the spec at all?"""

import re

from tandem.accept.rule import Refusal, Rule, Warn
from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import Mode, ServiceSpec

_SECURITY_FLOOR = "26.07"  # NVIDIA's bulletins up to CVE-2026-47627
_COLLECTS_SINCE = "25.04"  # errors have their call's id: `InferResponse::SaveToSharedMemory` of the Python backend
_NVIDIA_IMAGE = re.compile(r"(?:^|/)tritonserver:(\d{2}\.\d{2})(?![\d.])")
"""NVIDIA's images, and copies of them in other registries, have the release in their tag."""


def triton_release(spec: ServiceSpec, profile: Profile) -> str:
    """Release of Triton in the image that serves, such as 26.07; empty: not known.

    It is in the tags of NVIDIA's images; of others the profile says it, but not of what `runtime.image` replaces.
    """
    if found := _NVIDIA_IMAGE.search(spec.runtime.image or profile.image):
        return found[1]
    return "" if _own_image(spec, profile) else profile.triton_version


def _own_image(spec: ServiceSpec, profile: Profile) -> str:
    """The service's image where it is not the profile's; empty: the profile's serves."""
    return "" if spec.runtime.image == profile.image else spec.runtime.image


def _mode(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if spec.runtime.mode in profile.modes:
        return None
    return Refusal(
        SpecReason.MODE_NOT_IN_PROFILE,
        f"profile {profile.name!r} cannot run mode {spec.runtime.mode}: write runtime.mode:"
        f" {' or '.join(profile.modes)}, or another profile",
    )


def _decoding_type(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    types = profile.decoding_types.get(spec.runtime.mode, [])
    if spec.speculation.decoding_type in types:
        return None
    return Refusal(
        SpecReason.DECODING_TYPE_NOT_IN_PROFILE,
        f"profile {profile.name!r} cannot run decodingType {spec.speculation.decoding_type} in mode"
        f" {spec.runtime.mode}: write speculation.decodingType: {' or '.join(types)}, or another profile",
    )


def _tensor_parallel(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    sizes = {"target.tensorParallelSize": spec.target.tensor_parallel_size}
    if spec.draft:
        sizes["draft.tensorParallelSize"] = spec.draft.tensor_parallel_size
    if profile.own_engine_on_gpus:
        sizes["target.pipelineParallelSize"] = spec.target.pipeline_parallel_size
    why = " (splitting one never ran on GPUs)" if profile.own_engine_on_gpus else ""
    for field, size in sizes.items():
        if size > profile.max_tensor_parallel_size:
            return Refusal(
                SpecReason.TENSOR_PARALLEL_NOT_IN_PROFILE,
                f"{field} is {size}, and profile {profile.name!r} runs a model on at most"
                f" {profile.max_tensor_parallel_size}{why}: write a smaller one, or another profile",
            )
    return None


def _image(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if spec.runtime.image or profile.image:
        return None
    return Refusal(
        SpecReason.NO_IMAGE,
        f"profile {profile.name!r} names no image ({profile.description}): write runtime.image, or set the"
        f" profile's image in the Helm value `profiles`, as - {{name: {profile.name}, image: ...}}",
    )


def _collects(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    version = triton_release(spec, profile)
    used = profile.engine_calls == "Collected" and spec.runtime.mode is Mode.BLS and spec.draft is not None
    if not used or not version or _release(version) >= _release(_COLLECTS_SINCE):
        return None
    return Refusal(
        SpecReason.ENGINE_CALLS_NOT_IN_TRITON,
        f"profile {profile.name!r} has engineCalls Collected, and the image has Triton {version}: before"
        f" {_COLLECTS_SINCE} an error of one sequence loses the answers of the others; set the profile's engineCalls"
        " to Single in the Helm value `profiles`, or write another profile",
    )


def _warn_security(spec: ServiceSpec, profile: Profile) -> str | None:
    version = triton_release(spec, profile)
    if version and _release(version) >= _release(_SECURITY_FLOOR):
        return None
    has = f"has Triton {version}" if version else "does not name its release of Triton"
    return (
        f"{_place(spec, profile)} {has}: releases before {_SECURITY_FLOOR} have known vulnerabilities; write a newer"
        " profile or image, or let trusted clients alone connect (serving.access.from)"
    )


def _warn_unverified(spec: ServiceSpec, profile: Profile) -> str | None:
    if profile.verified and not _own_image(spec, profile):
        return None
    return (
        f"{_place(spec, profile)} is not verified: Tandem's tests never ran it on its hardware; try your models on it"
        " before you rely on it"
    )


def _place(spec: ServiceSpec, profile: Profile) -> str:
    """Where the image is written, for messages."""
    image = _own_image(spec, profile)
    return f"runtime.image {image}" if image else f"profile {profile.name!r}"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


RULES: tuple[Rule, ...] = (_mode, _decoding_type, _tensor_parallel, _collects, _image)
WARNINGS: tuple[Warn, ...] = (_warn_security, _warn_unverified)
