"""Autoscaling that the operator must not make: each source knows what of it."""

from tandem.accept.rule import Refusal, Rule
from tandem.api.profile import Profile
from tandem.api.types import ServiceSpec
from tandem.autoscaling import source_of


def _source(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    broken = source_of(spec.autoscaling).refusal(spec.autoscaling) if spec.autoscaling else None
    return Refusal(*broken) if broken else None


RULES: tuple[Rule, ...] = (_source,)
