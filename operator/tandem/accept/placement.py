"""The parts of `placement` that are the API server's own to judge, as far as Tandem reads them."""

from typing import Any

from pydantic import ValidationError

from tandem.api.conditions import SpecReason
from tandem.api.types import ServiceSpec
from tandem.api.wire import Wire
from tandem.engines import Engine
from tandem.engines.rule import Refusal, Rule


class _Term(Wire):
    match_expressions: list[dict[str, Any]] | None = None


class _NodeSelector(Wire):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Wire):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _Affinity(Wire):
    node_affinity: _NodeAffinity | None = None


def _affinity(spec: ServiceSpec, engine: Engine) -> Refusal | None:
    """Each term is narrowed to the GPUs that can serve."""
    try:
        _Affinity.model_validate(spec.placement.affinity or {})
    except ValidationError as error:
        path = ".".join(["placement.affinity", *map(str, error.errors()[0]["loc"])])
        message = (
            f"{path} is not of the form that a PodSpec has: kubectl explain pod.spec.affinity --recursive shows it"
        )
        return Refusal(SpecReason.AFFINITY_MALFORMED, message)
    return None


RULES: tuple[Rule, ...] = (_affinity,)
