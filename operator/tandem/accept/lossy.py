"""Settings that change the output: it is no longer that of the target alone."""

from tandem.api.types import ServiceSpec
from tandem.engines import Engine
from tandem.engines.rule import Warn


def _threshold(spec: ServiceSpec, engine: Engine) -> str | None:
    threshold = spec.speculation.acceptance.threshold
    if threshold is None:
        return None
    return f"speculation.acceptance.threshold {threshold:g} is lossy: the output is not distributed as the target's"


def _relaxed(spec: ServiceSpec, engine: Engine) -> str | None:
    if not spec.speculation.mtp or not spec.speculation.mtp.relaxed_acceptance:
        return None
    return "speculation.mtp.relaxedAcceptance is lossy: while the model thinks, its text is not the target's own"


WARNINGS: tuple[Warn, ...] = (_threshold, _relaxed)
