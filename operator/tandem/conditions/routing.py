"""RouteAccepted: what gateways say of a service's HTTPRoute and InferencePool. Pure."""

from collections.abc import Iterator

from tandem.api.conditions import ConditionType, ExternalReason, ServingReason
from tandem.children.metadata import identity
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Situation
from tandem.rollout.observed import ChildCondition

TYPES = ("Accepted", "ResolvedRefs")
"""The conditions of a parent by which a route, or a pool, is in use."""
ORDER = ("False", "Unknown", "True")


def route_accepted(situation: Situation) -> Iterator[Finding]:
    """The worst that is reported of them; none where the service asks for no route."""
    kind, wanted, refused = (
        ConditionType.ROUTE_ACCEPTED,
        situation.decision.desired.routing,
        situation.routing_refused,
    )
    if not wanted:
        return
    if refused:
        yield Finding(kind, "False", refused.reason, str(refused))
        return
    reported = list[ChildCondition]()
    for manifest in wanted:
        name = " ".join(identity(manifest))
        found = situation.observed.routed(*identity(manifest))
        own = [each for each in (found.conditions if found else ()) if each.type in TYPES]
        if not own:
            message = f"no gateway has taken the {name} yet: is there one for its parents, with a controller?"
            own = [ChildCondition(TYPES[0], "Unknown", ServingReason.WAITING_FOR_GATEWAY, message)]
        reported += own
    worst = min(reported, key=lambda each: ORDER.index(each.status))
    yield Finding(kind, worst.status, ExternalReason(worst.reason), worst.message)
