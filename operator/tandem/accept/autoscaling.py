"""Autoscaling that the operator must not make: each source knows what of it."""

from tandem.api.types import ServiceSpec
from tandem.autoscaling import source_of
from tandem.engines.rule import Refusal
from tandem.settings import Settings


def refusal(spec: ServiceSpec, settings: Settings) -> Refusal | None:
    """The rule that goes by the administrator's settings; None where it is kept."""
    broken = source_of(spec.autoscaling).refusal(spec.autoscaling, settings) if spec.autoscaling else None
    return Refusal(*broken) if broken else None
