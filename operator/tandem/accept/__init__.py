"""Rules that need more than the object: does the operator know the profile, and can it run the spec?

One file for each subject; rules that need only the object are CEL (`tandem.api.types`).
"""

from dataclasses import dataclass

from tandem.accept import autoscaling as autoscaling_rules
from tandem.accept import engines as engine_rules
from tandem.accept import gpus as gpu_rules
from tandem.accept import ignored, known_bad, llmapi, lossy, own_engine, pod_template, storage
from tandem.accept import placement as placement_rules
from tandem.accept import profile as profile_rules
from tandem.accept import request_parameters as request_parameter_rules
from tandem.accept import rollout as rollout_rules
from tandem.accept.rule import Refusal, Rule, SettingsRule, Warn
from tandem.api.conditions import SpecReason
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.settings import Settings

__all__ = ["Accepted", "Refusal", "accept", "refusals"]

RULES: tuple[Rule, ...] = (
    *profile_rules.RULES,
    *own_engine.RULES,
    *llmapi.RULES,
    *known_bad.RULES,
    *gpu_rules.RULES,
    *engine_rules.RULES,
    *placement_rules.RULES,
    *pod_template.RULES,
)
SETTINGS_RULES: tuple[SettingsRule, ...] = (*autoscaling_rules.SETTINGS_RULES,)
WARNINGS: tuple[Warn, ...] = (
    *profile_rules.WARNINGS,
    *engine_rules.WARNINGS,
    *llmapi.WARNINGS,
    *known_bad.WARNINGS,
    *lossy.WARNINGS,
    *request_parameter_rules.WARNINGS,
    *ignored.WARNINGS,
    *storage.WARNINGS,
    *rollout_rules.WARNINGS,
)


@dataclass(frozen=True)
class Accepted:
    """The profile that runs the spec, and what the user should know."""

    profile: Profile
    warnings: tuple[str, ...] = ()


def refusals(spec: ServiceSpec, settings: Settings, *, broken: bool = False) -> list[Refusal]:
    """All rules that `spec` breaks, but for those that count on others which it breaks. `broken`: it does not even
    keep the rules of the object itself, on which all but those of the profile count."""
    profile = settings.profile(spec.runtime.profile)
    if profile is None:
        return [_unknown(spec, settings)]
    found: list[Refusal] = []
    for rule in profile_rules.RULES if broken else RULES:
        try:
            refusal = rule(spec, profile)
        except Exception:
            if not found:
                raise
        else:
            found += [refusal] if refusal else []
    of_settings = () if broken else SETTINGS_RULES
    return found + [refusal for settings_rule in of_settings if (refusal := settings_rule(spec, settings))]


def accept(spec: ServiceSpec, settings: Settings) -> Accepted | Refusal:
    """The profile that runs `spec`, or the first rule that it breaks."""
    profile = settings.profile(spec.runtime.profile)
    if profile is None:
        return _unknown(spec, settings)
    for rule in RULES:
        if refusal := rule(spec, profile):
            return refusal
    for settings_rule in SETTINGS_RULES:
        if refusal := settings_rule(spec, settings):
            return refusal
    return Accepted(profile, tuple(text for warn in WARNINGS if (text := warn(spec, profile))))


def _unknown(spec: ServiceSpec, settings: Settings) -> Refusal:
    known = ", ".join(sorted(p.name for p in settings.profiles)) or "none"
    return Refusal(
        SpecReason.UNKNOWN_PROFILE,
        f"runtime.profile {spec.runtime.profile!r} is not in the operator's settings: write one of: {known};"
        " or add it to the Helm value `profiles`",
    )
