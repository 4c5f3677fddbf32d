"""Can the profile run the spec at all?"""

from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.engines import Engine, modes, why_not
from tandem.engines.rule import Refusal, Rule, Warn
from tandem.engines.triton import own_image, release, triton_release

_SECURITY_FLOOR = "26.07"  # NVIDIA's bulletins up to CVE-2026-47627


def _mode(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    if engine.runs:
        return None
    profile, known, why = engine.profile, modes(engine.profile), why_not(engine.profile, spec.runtime.mode)
    return Refusal(
        SpecReason.MODE_NOT_IN_PROFILE,
        f"profile {profile.name!r} cannot run mode {spec.runtime.mode}{why}: write runtime.mode:"
        f" {' or '.join(known)}, or another profile",
    )


def _decoding_type(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    types, profile = engine.decoding_types, engine.profile
    if not engine.runs or spec.speculation.decoding_type in types:
        return None
    kind = spec.speculation.decoding_type
    advice = engine.instead.get(kind) or f"write speculation.decodingType: {' or '.join(types)}, or another profile"
    return Refusal(
        SpecReason.DECODING_TYPE_NOT_IN_PROFILE,
        f"profile {profile.name!r} cannot run decodingType {kind} in mode {spec.runtime.mode}: {advice}",
    )


def _tensor_parallel(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    sizes = {"target.tensorParallelSize": spec.target.tensor_parallel_size}
    if spec.draft:
        sizes["draft.tensorParallelSize"] = spec.draft.tensor_parallel_size
    profile, most = engine.profile, engine.profile.max_tensor_parallel_size
    for field, size in sizes.items():
        if size > most:
            return Refusal(
                SpecReason.TENSOR_PARALLEL_NOT_IN_PROFILE,
                f"{field} is {size}, and profile {profile.name!r} runs a model on at most"
                f" {most}{engine.why_not_split}: write a smaller one, or another profile",
            )
    return None


def _image(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    profile = engine.profile
    if spec.runtime.image or profile.image:
        return None
    return Refusal(
        SpecReason.NO_IMAGE,
        f"profile {profile.name!r} names no image ({profile.description}): write runtime.image, or set the"
        f" profile's image in the Helm value `profiles`, as - {{name: {profile.name}, image: ...}}",
    )


def _warn_security(spec: ServiceSpec, engine: Engine) -> str | None:
    # A profile without GPUs is for trials.
    if spec.serving.access.sources or not engine.profile.gpus:
        return None
    version = triton_release(spec, engine.profile)
    if version and release(version) >= release(_SECURITY_FLOOR):
        return None
    has = f"has Triton {version}" if version else "does not name its release of Triton"
    return (
        f"{_place(spec, engine.profile)} {has}: releases before {_SECURITY_FLOOR} have known vulnerabilities; write a"
        " newer profile or image, or allow only trusted clients to connect (serving.access.from)"
    )


def is_verified(spec: ServiceSpec, engine: Engine) -> bool:
    """Whether the image that serves is one that Tandem's tests ran on its hardware."""
    return engine.profile.verified and not own_image(spec, engine.profile)


def _place(spec: ServiceSpec, profile: Profile) -> str:
    """Where the image is written, for messages."""
    image = own_image(spec, profile)
    return f"runtime.image {image}" if image else f"profile {profile.name!r}"


RULES: tuple[Rule, ...] = (_mode, _decoding_type, _tensor_parallel, _image)
WARNINGS: tuple[Warn, ...] = (_warn_security,)
