"""Autoscaling that the operator must not make: each source knows what of it."""

from tandem.accept.rule import Refusal, SettingsRule
from tandem.api.types import ServiceSpec
from tandem.autoscaling import source_of
from tandem.settings import Settings


def _source(spec: ServiceSpec, settings: Settings) -> Refusal | None:
    broken = source_of(spec.autoscaling).refusal(spec.autoscaling, settings) if spec.autoscaling else None
    return Refusal(*broken) if broken else None


SETTINGS_RULES: tuple[SettingsRule, ...] = (_source,)
