"""Fields that have no effect where they are written: the service runs without them, and a warning names them."""

from collections.abc import Iterator

from tandem.api.roles import downloads, references
from tandem.api.types import Adaptive, Gpu, ServiceSpec
from tandem.engines import Engine, loop_of
from tandem.engines.rule import Warn

TRUST = "trust_remote_code"


def _trust_remote_code(spec: ServiceSpec, engine: Engine) -> str | None:
    """The fetcher takes no code along: nothing in the cluster runs what a model brings."""
    field = next(_trusting(spec), "")
    fetched = downloads(spec)
    found = next((source.uri for role, source in references(spec).items() if role in fetched), "")
    if not field or not found:
        return None
    return (
        f"{field}: downloads bring no code along, so {found} loads only where it needs none of its own; bring a model"
        f" with its code as pvc://, oci:// or file://, or remove {TRUST}"
    )


def _trusting(spec: ServiceSpec) -> Iterator[str]:
    extra = spec.runtime.extra_llm_args
    if extra.get(TRUST):
        yield f"runtime.extraLlmArgs.{TRUST}"
    nested = extra.get("speculative_config")
    if isinstance(nested, dict) and nested.get(TRUST):
        yield f"runtime.extraLlmArgs.speculative_config.{TRUST}"
    if spec.speculation.custom and spec.speculation.custom.args.get(TRUST):
        yield f"speculation.custom.args.{TRUST}"
    for role, model in {"target": spec.target, "draft": spec.draft}.items():
        build = model.engine.build if model and model.engine else None
        if build and TRUST in build.extra_args:
            yield f"{role}.engine.build.extraArgs.{TRUST}"


def _adaptive(spec: ServiceSpec, engine: Engine) -> str | None:
    if loop_of(spec).chooses_length or spec.speculation.adaptive == Adaptive():
        return None
    return (
        "speculation.adaptive is for mode BLS, and has no effect in mode LLMAPI: remove it, or write"
        " speculation.draftLenSchedule"
    )


def _devices(spec: ServiceSpec, engine: Engine) -> str | None:
    gpu, claims = spec.placement.gpu, spec.placement.resource_claims
    if not engine.profile.gpus and (gpu != Gpu() or claims):
        field = "placement.gpu" if gpu != Gpu() else "placement.resourceClaims"
        name = engine.profile.name
        return f"{field} has no effect: profile {name!r} runs on CPUs; remove it, or write another profile"
    if claims and gpu.resource_name != Gpu().resource_name:
        return (
            f"placement.gpu.resourceName {gpu.resource_name} has no effect where placement.resourceClaims give"
            " the devices: remove one of them"
        )
    return None


WARNINGS: tuple[Warn, ...] = (_trust_remote_code, _adaptive, _devices)
