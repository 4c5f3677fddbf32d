"""The plans: one fault each. They follow from what the reference runs recorded (recorded.yaml)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import yaml

from . import edits
from .courses import At, Course, Down, During, LeaderLost, Paused, Perturbed, Restarted, Revoked, Stalely, Together
from .injected import Answer, CutWatch, Drop, Gone, Hang, Kill, Lost, OnWatch, Refuse, Stall
from .injected import Down as Away
from .proxy import Fault
from .scenarios import delete

RECORDED = Path(__file__).with_name("recorded.yaml")
MERGED = 2
"""Of statuses and Events the first ones alone: later ones may be written as one where much happens at once."""
LONG_SECONDS = 72.0
"""Longer than kopf tries, by itself, and than any pause between two tries."""


@dataclass(frozen=True)
class Plan:
    """One fault in one scenario."""

    group: int
    """Of the twelve groups of faults."""
    id: str
    scenario: str
    course: Course
    ends: str = ""
    """Scenario whose end is the right one; empty: its own."""
    counts: bool = True
    """Whether objects and servers on the way are compared with the reference."""
    explains: Mapping[str, int] = field(default_factory=dict)
    """Objects that are made more often than in the reference, as the fault has it."""
    allowed: tuple[str, ...] = ()
    """Words of exceptions that the operator may log: kopf's own, where its watch is refused."""
    operators: int = 1
    slips: int = 0
    """Writes of an operator that has no Lease any more: the one that was under way when it was paused."""
    fewer_ready: bool = False
    """Whether the fault itself takes servers away."""
    honest: bool = True
    """Whether the operators are ready at the end."""
    deadline: float = 240.0
    """Seconds, at most, from the end of the fault until all is as it should be: what never comes. How long it took is
    in the table of outcomes."""
    quick: bool = False
    """Whether it is part of `make test`."""
    defect: str = ""
    """Of the operator: see support.simulation.mutants."""

    @property
    def reference(self) -> str:
        """The scenario to compare with."""
        return self.ends or self.scenario


@cache
def recorded() -> dict[str, dict[str, dict[str, int]]]:
    """By scenario: how often there is a request, and an event of a watch."""
    found: dict[str, dict[str, dict[str, int]]] = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    return found


def is_write(request: str) -> bool:
    """Whether it changes anything but a Lease."""
    return request.split("-")[0] in ("create", "apply", "replace", "delete") and "leases" not in request


def writes(scenario: str) -> Iterator[tuple[str, int]]:
    """Each write of a scenario: its request, and the how manieth it is."""
    for request, times in recorded()[scenario]["requests"].items():
        if is_write(request):
            yield from ((request, number) for number in range(1, min(times, MERGED) + 1))


def events(scenario: str) -> Iterator[tuple[str, str]]:
    """Kind and type of each event of a watch."""
    for event in recorded()[scenario]["events"]:
        type_, resource = event.split("-")
        yield resource, type_


def kills() -> Iterator[Plan]:
    """Group 1: killed before and after each write, and when all is well."""
    yield Plan(1, "still-killed", "still", Restarted())
    both = ("before", "after")
    moments: dict[str, tuple[str, ...]] = dict.fromkeys(("create", "update", "replace", "scale", "shrink"), both)
    moments |= dict.fromkeys(("recreate", "orphan", "rollback", "bad"), ("after",))
    for scenario, when in moments.items():
        for request, number in writes(scenario):
            for moment in when:
                fault = partial(Kill, request, number, after_it=moment == "after")
                yield Plan(1, f"{scenario}-kill-{moment}-{request}-{number}", scenario, During(fault))


WATCHES: Mapping[str, Callable[..., OnWatch]] = {"cut": CutWatch, "stall": Stall, "expire": Gone}
REFUSALS = (403, 404, 410, 429, 500, 503)


def watches() -> Iterator[Plan]:
    """Group 2: watches that end, fall silent, or are refused, and an API server that is away."""
    for scenario in ("create", "update", "scale"):
        for resource in sorted({resource for resource, _ in events(scenario)}):
            for word, kind in WATCHES.items():
                course = During(partial(kind, resource))
                yield Plan(2, f"{scenario}-{word}-watch-{resource}", scenario, course)
    for scenario in ("create", "update"):
        for code in REFUSALS:
            yield _refused(f"{scenario}-refused-{code}", scenario, partial(Refuse, "", code, 5.0))
        yield _refused(f"{scenario}-refused-pods-403", scenario, partial(Refuse, "pods", 403, 5.0))
        yield Plan(2, f"{scenario}-away-8", scenario, During(partial(Away, 8.0)), allowed=("kopf",))
    for code in (403, 404, 503):
        fault = partial(Refuse, "sis", code, LONG_SECONDS)
        yield _refused(f"update-refused-sis-{code}-long", "update", fault)
    yield _refused("scale-away-25", "scale", partial(Away, 25.0))
    for scenario in ("create", "update", "delete"):
        away = Down(partial(Away, 6.0))
        yield Plan(2, f"{scenario}-away-at-start", scenario, away, allowed=("kopf",))


def _refused(id_: str, scenario: str, fault: Callable[[], Fault]) -> Plan:
    return Plan(2, id_, scenario, During(fault), allowed=("kopf",))


ALL_ERRORS: Mapping[str, Callable[[str, int], Fault]] = {
    **{str(code): partial(Answer, code=code) for code in (409, 422, 429, 500)},
    "lost-before": Lost,
    "lost-after": partial(Lost, after_it=True),
}
READS = ("get-sis", "list-configmaps", "list-deployments", "list-jobs", "list-pods", "list-services", "list-pdb")


def errors() -> Iterator[Plan]:
    """Group 3: a request gets an error, or no answer."""
    chosen = {"create": tuple(ALL_ERRORS), "update": ("409", "500", "lost-after"), "scale": tuple(ALL_ERRORS)}
    for scenario, words in chosen.items():
        for request, number in writes(scenario):
            for word in words:
                fault = partial(ALL_ERRORS[word], request, number)
                yield Plan(3, f"{scenario}-{word}-{request}-{number}", scenario, During(fault))
    for request in (*READS, "get-leases", "replace-leases"):
        for word in ("429", "500", "lost-after"):
            fault = partial(ALL_ERRORS[word], request, 1)
            yield Plan(3, f"update-{word}-{request}-1", "update", During(fault))
    for request, after in (("apply-deployments-server", True), ("apply-status", False), ("list-pods", True)):
        course = During(partial(Hang, request, 1, after_it=after))
        yield Plan(3, f"update-hang-{request}-1", "update", course)


def stale() -> Iterator[Plan]:
    """Group 4: watches that begin with an old list after a restart; children of a service that was there before."""
    for scenario in ("update", "scale", "rollback", "recreate"):
        yield Plan(4, f"{scenario}-stale-lists", scenario, Stalely(4.0))
    for scenario in ("recreate", "orphan"):
        for settle in (True, False):
            id_ = f"{scenario}-while-down" + "-unsettled" * (not settle)
            yield Plan(4, id_, scenario, Down(settle=settle), counts=settle)


def dropped() -> Iterator[Plan]:
    """Group 5: an event is lost, or many are: edits while the operator is away."""
    for scenario in ("create", "update", "scale", "shrink", "delete"):
        for resource, type_ in events(scenario):
            course = During(partial(Drop, resource, type_))
            yield Plan(5, f"{scenario}-drop-{type_}-{resource}".lower(), scenario, course)
    for scenario in ("create", "update", "replace", "scale", "shrink", "rollback", "bad"):
        yield Plan(5, f"{scenario}-while-down", scenario, Down(settle=False))
    yield Plan(5, "back-while-down", "back", Down(settle=False), ends="still")


MADE_AGAIN: Mapping[str, Mapping[str, int]] = {
    "deployments": {"Deployment/server": 1, "Pod/server": 1},
    "pods": {"Pod/server": 1},
    "services": {"Service/triton": 1},
    "serviceaccounts": {"ServiceAccount/server": 1},
    "poddisruptionbudgets": {"PodDisruptionBudget/server": 1},
    "configmaps-revision": {"ConfigMap/revision": 1},
    "configmaps-preflight": {"ConfigMap/preflight": 1, "Job/preflight": 1, "Pod/preflight": 1},
}
GUARDS: Mapping[str, Mapping[str, int]] = {
    "networkpolicies": {"NetworkPolicy/server": 1},
    "horizontalpodautoscalers": {"HorizontalPodAutoscaler/server": 1},
}


def drift() -> Iterator[Plan]:
    """Group 6: children are deleted, or changed by somebody else; and what users of other operators met."""
    for scenario, children in (("still", MADE_AGAIN), ("guarded-still", GUARDS)):
        for child, again in children.items():
            for down in (False, True):
                resource, _, role = child.partition("-")
                course = Perturbed(edits.delete_child(resource, role), down)
                loses = resource in ("deployments", "pods")
                id_ = f"drift-delete-{child}" + "-while-down" * down
                yield Plan(6, id_, scenario, course, explains=again, fewer_ready=loses)
    for resource in (*MADE_AGAIN, *GUARDS):
        if resource == "pods":
            continue
        course = Perturbed(edits.change_fields(*resource.partition("-")[::2]))
        yield Plan(6, f"drift-fields-{resource}", "guarded-still", course, counts=False)
    yield Plan(6, "still-wiped-status", "still", Perturbed(edits.wipe_status))
    yield Plan(6, "still-wiped-status-while-down", "still", Perturbed(edits.wipe_status, down=True))
    for request in ("apply-jobs-preflight", "apply-deployments-server"):
        yield Plan(6, f"update-wiped-status-at-{request}", "update", At(request, 1, edits.wipe_status))
    yield Plan(6, "still-pending-then-back", "still", Perturbed(edits.pend_and_go_back), counts=False)


def deletions() -> Iterator[Plan]:
    """Group 8: the service, or its namespace, is deleted at each write; with the operator away."""
    yield Plan(8, "delete-while-down", "delete", Down())
    yield Plan(8, "foreground", "foreground", Together())
    yield Plan(8, "foreground-while-down", "foreground", Down())
    for request, number in writes("create"):
        course: Course = At(request, number, delete)
        yield Plan(8, f"create-deleted-at-{request}-{number}", "create", course, ends="delete", counts=False)
        course = At(request, number, edits.delete_namespace)
        id_ = f"create-namespace-deleted-at-{request}-{number}"
        yield Plan(8, id_, "create", course, ends="delete", counts=False, honest=False, allowed=("kopf",))


def leaders() -> Iterator[Plan]:
    """Group 9: two operators; the leader is killed, or stands still for longer than its Lease lasts."""
    for scenario in ("create", "update", "scale", "rollback"):
        yield Plan(9, f"{scenario}-two-operators", scenario, Together(), operators=2)
    for scenario in ("create", "update"):
        for request, number in writes(scenario):
            if number > 1 or "events" in request:
                continue
            yield Plan(9, f"{scenario}-leader-lost-at-{request}", scenario, LeaderLost(request), operators=2)
            again = {"Job/preflight": 1, "Pod/preflight": 1} if request == "apply-jobs-preflight" else {}
            id_ = f"{scenario}-leader-paused-at-{request}"
            yield Plan(9, id_, scenario, Paused(request), operators=2, slips=1, explains=again)


def rights() -> Iterator[Plan]:
    """Group 12: a right is revoked while the operator runs, and comes back."""
    for resource in (
        "configmaps",
        "jobs",
        "deployments",
        "services",
        "serviceaccounts",
        "poddisruptionbudgets",
        "pods",
    ):
        pairs: dict[str, Sequence[tuple[str, str]]] = {"list": (("list", resource), ("watch", resource))}
        if resource != "pods":
            pairs["patch"] = (("patch", resource), ("create", resource))
        for word, revoked in pairs.items():
            course = Revoked(tuple(revoked), 4.0)
            yield Plan(12, f"create-without-{word}-{resource}", "create", course, allowed=("kopf",))
    status = (("patch", "speculativeinferenceservices/status"),)
    yield Plan(12, "create-without-patch-status", "create", Revoked(status, 4.0))
    services = (("list", "speculativeinferenceservices"), ("watch", "speculativeinferenceservices"))
    yield Plan(12, "update-without-list-sis", "update", Revoked(services, 8.0), allowed=("kopf",))


GROUPS = (kills, watches, errors, stale, dropped, drift, deletions, leaders, rights)
QUICK = 16
"""Of so many plans of a group, one is part of `make test`."""


def plans() -> list[Plan]:
    """All of them."""
    found = [plan for group in GROUPS for plan in group()]
    assert len({plan.id for plan in found}) == len(found), "an id is one plan's"
    return [replace(plan, quick=number % QUICK == 0) for number, plan in enumerate(found)]
