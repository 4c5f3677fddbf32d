"""docs/reference/conditions.md: every condition type and every reason, from the registry."""

from collections.abc import Iterator

from tandem.api.conditions import AS_SPECIFIED, REASONS, STAGES, ConditionStatus, ConditionType, EventReason

HEAD = """# Conditions

Generated from the registry in operator/tandem/api/conditions by `make generate`.

`tandem status NAME` shows a service's conditions. Each has a reason, one of the tables below, and a message that says
what is wrong, where, and what to write or do.

`Ready`, `Reconciling` and `Stalled` follow kstatus, and take over the reason of the condition that is in the way.
`ScalingActive` takes over the reason of the HorizontalPodAutoscaler or ScaledObject. A Job of another version may
report a reason that is not here.
"""
EVENTS = """## Events

The service's Events (`kubectl describe sis NAME`) have the reason and the message of a condition. One is written when
`Ready` changes (not for pods while `PodsHealthy` is False, whose Event has the cause), when a stage of a start begins
({stages}), and a Warning when `Stalled` has another reason or when one of these becomes False: {warned}. None is
written for {exempt}, which the specification asks for.

Events alone have these reasons:
"""


def conditions_reference() -> str:
    """The whole page, as Markdown."""
    types = [f"| [{each}](#{each.lower()}) | {each.meaning} | {each.present} |" for each in ConditionType]
    parts = [HEAD, _table("condition | True means | present", types)]
    for kind in ConditionType:
        rows = list(_rows(kind))
        table = _table("status | reason | meaning | what to do", rows) if rows else "It has the reason of `Ready`.\n"
        parts += [f"## {kind}\n", table]
    warned = ", ".join(f"`{each}`" for each in ConditionType if each.warns)
    exempt = " and ".join(f"`{each}`" for each in AS_SPECIFIED)
    stages = ", ".join(f"`{each}`" for each in STAGES)
    events = [f"| `{each}` | {each.meaning} | {each.action} |" for each in EventReason]
    parts += [
        EVENTS.format(warned=warned, exempt=exempt, stages=stages),
        _table("reason | meaning | what to do", events),
    ]
    return "\n".join(parts)


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([f"| {head} |", "|---" * (head.count("|") + 1) + "|", *rows, ""])


def _rows(kind: ConditionType) -> Iterator[str]:
    """The reasons that are a condition's own, those of True first."""
    order: tuple[ConditionStatus, ...] = ("True", "False", "Unknown")
    found = {reason: shown.statuses for reason in REASONS for shown in reason.shown if shown.type is kind}
    for reason, statuses in sorted(found.items(), key=lambda item: min(map(order.index, item[1]))):
        status = " or ".join(sorted(statuses, key=order.index))
        yield f"| {status} | `{reason}` | {reason.meaning} | {reason.action} |"
