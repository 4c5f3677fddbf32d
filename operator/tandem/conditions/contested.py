"""The condition `ChildrenKept`: somebody writes into a child again and again what does not belong there. Pure."""

from collections.abc import Iterator, Sequence

from tandem.api.conditions import ConditionType, ServingReason
from tandem.conditions.finding import Finding
from tandem.conditions.situation import Contested


def children_kept(contested: Sequence[Contested]) -> Iterator[Finding]:
    """The condition, which is there only while it is False."""
    if contested:
        message = "; ".join(map(_described, contested))
        yield Finding(ConditionType.CHILDREN_KEPT, "False", ServingReason.WRITTEN_BY_OTHERS, message)


def _described(child: Contested) -> str:
    name = f"{child.kind} {child.name}"
    if not child.written:
        return (
            f"{name} is not as it was applied, {child.times} times within the hour: see which admission webhook, or"
            " program, changes it, and exempt it there"
        )
    return (
        f"{name}: {child.written}, again after each of {child.times} reverts, and it stays for an hour: stop that"
        " program, or write what it wants into the service, such as in spec.podTemplate"
    )
