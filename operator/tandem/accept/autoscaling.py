"""The user's own triggers: what KEDA does for them with rights that the namespace does not have."""

from collections.abc import Mapping

from tandem.accept.rule import Refusal, Rule
from tandem.api.conditions import SpecReason
from tandem.api.types import ServiceSpec
from tandem.settings import Profile

CLUSTER_WIDE = "ClusterTriggerAuthentication"


def _triggers(spec: ServiceSpec, profile: Profile) -> Refusal | None:
    """A trigger says where KEDA asks, and such an object holds what it shows there: Secrets of KEDA's namespace. Who
    may write services would read them by a trigger that asks a server of his own."""
    keda = spec.autoscaling.keda if spec.autoscaling else None
    for index, trigger in enumerate(keda.triggers if keda else ()):
        reference = trigger.get("authenticationRef")
        if isinstance(reference, Mapping) and reference.get("kind") == CLUSTER_WIDE:
            return Refusal(
                SpecReason.CLUSTER_TRIGGER_AUTHENTICATION_REFUSED,
                f"autoscaling.keda.triggers[{index}].authenticationRef is a {CLUSTER_WIDE}, whose credentials are not"
                " this namespace's: write kind: TriggerAuthentication, with one of this namespace",
            )
    return None


RULES: tuple[Rule, ...] = (_triggers,)
