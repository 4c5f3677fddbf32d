"""Rules that need more than the object: does the operator know the profile, and can it run the spec?

One file for each subject; rules that need only the object are CEL (`tandem.api.types`).
"""

from dataclasses import dataclass

from tandem.accept import autoscaling as autoscaling_rules
from tandem.accept import gpus as gpu_rules
from tandem.accept import ignored, lossy, pod_template, storage
from tandem.accept import placement as placement_rules
from tandem.accept import profile as profile_rules
from tandem.accept import request_parameters as request_parameter_rules
from tandem.accept import rollout as rollout_rules
from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.engines import Engine, engine_of
from tandem.engines.rule import Refusal, Rule, Warn
from tandem.settings import Settings

__all__ = ["Accepted", "Refusal", "accept", "refusals"]

RULES: tuple[Rule, ...] = (*gpu_rules.RULES, *placement_rules.RULES, *pod_template.RULES)
"""Those of the profile and of the engine come before them."""
WARNINGS: tuple[Warn, ...] = (
    *lossy.WARNINGS,
    *request_parameter_rules.WARNINGS,
    *ignored.WARNINGS,
    *storage.WARNINGS,
    *rollout_rules.WARNINGS,
)


@dataclass(frozen=True)
class Accepted:
    """The engine that runs the spec, and what the user should know."""

    engine: Engine
    warnings: tuple[str, ...] = ()
    verified: bool = True
    """Whether Tandem's tests ran the image on its hardware."""

    @property
    def profile(self) -> Profile:
        """The profile with that engine."""
        return self.engine.profile


def refusals(spec: ServiceSpec, settings: Settings, *, broken: bool = False) -> list[Refusal]:
    """All rules that `spec` breaks, but for those that count on others which it breaks. `broken`: it does not even
    keep the rules of the object itself, on which all but those of the profile count."""
    profile = settings.profile(spec.runtime.profile)
    if profile is None:
        return [_unknown(spec, settings)]
    engine, found = engine_of(spec, profile), list[Refusal]()
    for rule in profile_rules.RULES if broken else _rules(engine):
        try:
            refusal = rule(spec, engine)
        except Exception:
            if not found:
                raise
        else:
            found += [refusal] if refusal else []
    scaling = None if broken else autoscaling_rules.refusal(spec, settings)
    return found + ([scaling] if scaling else [])


def accept(spec: ServiceSpec, settings: Settings) -> Accepted | Refusal:
    """The profile that runs `spec`, or the first rule that it breaks."""
    profile = settings.profile(spec.runtime.profile)
    if profile is None:
        return _unknown(spec, settings)
    engine = engine_of(spec, profile)
    for rule in _rules(engine):
        if refusal := rule(spec, engine):
            return refusal
    if refusal := autoscaling_rules.refusal(spec, settings):
        return refusal
    warnings = (*profile_rules.WARNINGS, *engine.warnings, *WARNINGS)
    told = tuple(text for warn in warnings if (text := warn(spec, engine)))
    return Accepted(engine, told, profile_rules.is_verified(spec, engine))


def _rules(engine: Engine) -> tuple[Rule, ...]:
    return (*profile_rules.RULES, *engine.rules, *RULES)


def _unknown(spec: ServiceSpec, settings: Settings) -> Refusal:
    known = ", ".join(sorted(p.name for p in settings.profiles)) or "none"
    return Refusal(
        SpecReason.UNKNOWN_PROFILE,
        f"runtime.profile {spec.runtime.profile!r} is not in the operator's settings: write one of: {known};"
        " or add it to the Helm value `profiles`",
    )
