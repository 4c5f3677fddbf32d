"""Rules that need more than the object: does the operator know the profile, and can it run the spec?"""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.api.types import ServiceSpec
from tandem.settings import Profile, Settings


@dataclass(frozen=True)
class Refusal:
    """Why a spec is not accepted: a CamelCase reason, and what to write instead."""

    reason: str
    message: str


Rule = Callable[[ServiceSpec, Profile], Refusal | None]


def accept(spec: ServiceSpec, settings: Settings) -> Profile | Refusal:
    """The profile that runs `spec`, or the first rule that it breaks."""
    profile = settings.profile(spec.runtime.profile)
    if profile is None:
        known = ", ".join(sorted(p.name for p in settings.profiles)) or "none"
        return Refusal(
            "UnknownProfile",
            f"runtime.profile {spec.runtime.profile!r} is not in the operator's settings: write one of: {known};"
            " or add it to the Helm value `profiles`",
        )
    for rule in RULES:
        if refusal := rule(spec, profile):
            return refusal
    return profile


def _mode(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if spec.runtime.mode in profile.modes:
        return None
    return Refusal(
        "ModeNotInProfile",
        f"profile {profile.name!r} cannot run mode {spec.runtime.mode}: write runtime.mode:"
        f" {' or '.join(profile.modes)}, or another profile",
    )


def _decoding_type(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    if spec.speculation.decoding_type in profile.decoding_types:
        return None
    return Refusal(
        "DecodingTypeNotInProfile",
        f"profile {profile.name!r} cannot run decodingType {spec.speculation.decoding_type}: write"
        f" speculation.decodingType: {' or '.join(profile.decoding_types)}, or another profile",
    )


def _tensor_parallel(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    sizes = {"target": spec.target.tensor_parallel_size}
    if spec.draft:
        sizes["draft"] = spec.draft.tensor_parallel_size
    for role, size in sizes.items():
        if size > profile.max_tensor_parallel_size:
            return Refusal(
                "TensorParallelNotInProfile",
                f"{role}.tensorParallelSize is {size}, and profile {profile.name!r} runs a model on at most"
                f" {profile.max_tensor_parallel_size}: write a smaller one, or another profile",
            )
    return None


RULES: tuple[Rule, ...] = (_mode, _decoding_type, _tensor_parallel)
