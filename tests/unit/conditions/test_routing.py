"""RouteAccepted: what gateways report, or what keeps the route from being made."""

from typing import Any

import pytest

from support.services import QUICKSTART, parse
from support.world import applied, observed_of
from tandem.api.wire import Object
from tandem.conditions.routing import route_accepted
from tandem.conditions.situation import Situation
from tandem.errors import KindMissing, Refused
from tandem.rollout.decide import decide
from tandem.rollout.observed import Observed
from tandem.settings import load_settings

SETTINGS = load_settings(None)
PARENTS = {"parentRefs": [{"name": "public"}]}
ROUTE = {"route": PARENTS}
BOTH = {**ROUTE, "inferencePool": {"endpointPickerRef": {"name": "picker"}}}


def condition(kind: str, status: str, reason: str, generation: int = 1) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": "why", "observedGeneration": generation}


def parent(*conditions: Object, name: str = "public") -> Object:
    return {"parentRef": {"name": name}, "controllerName": "example.com/c", "conditions": list(conditions)}


TAKEN = parent(condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", "True", "ResolvedRefs"))
NO_BACKEND = parent(condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", "False", "BackendNotFound"))
NO_LISTENER = parent(condition("Accepted", "False", "NoMatchingParent"), name="other")
OLD = parent(condition("Accepted", "True", "Accepted", generation=0))

ROWS: list[tuple[str, dict[str, Any], dict[str, list[Object]], str]] = [
    # case, openAI, parents in status by kind, the condition
    ("taken", ROUTE, {"HTTPRoute": [TAKEN]}, "True/Accepted"),
    ("its backend is unknown", ROUTE, {"HTTPRoute": [NO_BACKEND]}, "False/BackendNotFound"),
    ("of several parents the worst", ROUTE, {"HTTPRoute": [TAKEN, NO_LISTENER]}, "False/NoMatchingParent"),
    ("no controller has seen it", ROUTE, {"HTTPRoute": []}, "Unknown/WaitingForGateway"),
    ("it saw an earlier one", ROUTE, {"HTTPRoute": [OLD]}, "Unknown/WaitingForGateway"),
    ("route and pool are taken", BOTH, {"HTTPRoute": [TAKEN], "InferencePool": [TAKEN]}, "True/Accepted"),
    ("the pool is not", BOTH, {"HTTPRoute": [TAKEN], "InferencePool": [NO_LISTENER]}, "False/NoMatchingParent"),
    ("nobody knows the pool", BOTH, {"HTTPRoute": [TAKEN], "InferencePool": []}, "Unknown/WaitingForGateway"),
]


def situation(openai: dict[str, Any], parents: dict[str, list[Object]], refused: Refused | None = None) -> Situation:
    service = parse(QUICKSTART, serving={"openAI": openai})
    decision = decide(service, SETTINGS, Observed())
    there = []
    for made in decision.desired.routing:
        manifest = applied(made)
        manifest["metadata"]["generation"] = 1
        there.append({**manifest, "status": {"parents": parents.get(made["kind"], [])}})
    return Situation(service, decision, observed_of(*there), "2026-01-01T00:00:00Z", routing_refused=refused)


def shown(situation: Situation) -> list[tuple[str, str]]:
    return [(f"{each.status}/{each.reason}", each.message) for each in route_accepted(situation)]


@pytest.mark.parametrize(("case", "openai", "parents", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_what_gateways_report(
    case: str, openai: dict[str, Any], parents: dict[str, list[Object]], wanted: str
) -> None:
    assert [stands for stands, _ in shown(situation(openai, parents))] == [wanted], case


def test_the_message_names_the_object_and_the_gateway() -> None:
    [(_, message)] = shown(situation(ROUTE, {"HTTPRoute": [NO_LISTENER]}))
    assert message == "HTTPRoute quickstart-openai: Gateway other: why"


def test_without_a_route_there_is_no_condition() -> None:
    assert shown(situation({}, {})) == []


def test_what_the_api_server_refuses_is_shown() -> None:
    missing = KindMissing("HTTPRoute", "install it")
    [(stands, message)] = shown(situation(ROUTE, {"HTTPRoute": [TAKEN]}, missing))
    assert (stands, message) == ("False/HTTPRouteMissing", "HTTPRoute is not installed in this cluster: install it")
