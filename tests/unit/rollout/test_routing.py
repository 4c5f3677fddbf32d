"""The route and the pool of a service: what they are, and when which is there."""

from typing import Any

import pytest
from pydantic import ValidationError

from support.services import QUICKSTART, parse
from support.world import World, applied, observed_of
from tandem import children
from tandem.accept import Refusal
from tandem.api.conditions import SpecReason
from tandem.api.wire import Object
from tandem.children.desired import Desired
from tandem.errors import Forbidden
from tandem.render import asks_for
from tandem.rollout.decide import Decision, decide
from tandem.rollout.observed import Observed
from tandem.rollout.plan import missing_rights, routing
from tandem.settings import load_settings

SETTINGS = load_settings(None)
PARENTS = {"parentRefs": [{"name": "public", "namespace": "gateways"}]}
ROUTE = {"route": PARENTS}
POOL = {"inferencePool": {"endpointPickerRef": {"name": "picker"}}}
BOTH = {**ROUTE, **POOL}


def desired(openai: dict[str, Any]) -> Desired:
    return decide(parse(QUICKSTART, serving={"openAI": openai}), SETTINGS, Observed()).desired


def test_a_route_leads_to_the_base_url_alone() -> None:
    asked = {**PARENTS, "hostnames": ["llm.example.com"], "path": "/team/llama"}
    service = parse(QUICKSTART, serving={"openAI": {"route": asked, "port": 443}, "requestTimeoutSeconds": 77})
    made = children.http_route(service)
    assert made is not None
    assert (made["apiVersion"], made["metadata"]["name"]) == ("gateway.networking.k8s.io/v1", "quickstart-openai")
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "namespace": "gateways"}
    rewritten = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v1"}
    backend = {"group": "", "kind": "Service", "name": "quickstart-triton", "port": 443, "weight": 1}
    assert made["spec"] == {
        "parentRefs": [parent],
        "hostnames": ["llm.example.com"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/team/llama/v1"}}],
                "filters": [{"type": "URLRewrite", "urlRewrite": {"path": rewritten}}],
                "backendRefs": [backend],
                "timeouts": {"request": "77s"},
            }
        ],
    }


def test_without_a_path_nothing_is_rewritten() -> None:
    (route,) = desired(ROUTE).routing
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]
    assert "filters" not in rule


def test_a_pool_is_of_the_pods_that_answer_and_the_route_leads_to_it() -> None:
    pool, route = desired(BOTH).routing
    assert pool["spec"] == {
        "selector": {"matchLabels": children.endpoint(parse(QUICKSTART))["spec"]["selector"]},
        "targetPorts": [{"number": 9000}],
        "endpointPickerRef": {
            "group": "",
            "kind": "Service",
            "name": "picker",
            "port": {"number": 9002},
            "failureMode": "FailClose",
        },
    }
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    name = pool["metadata"]["name"]
    assert backend == {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "weight": 1}


@pytest.mark.parametrize("openai", [{}, {**BOTH, "enabled": False}])
def test_there_is_none_unless_asked_for_nor_without_the_endpoint(openai: dict[str, Any]) -> None:
    assert desired(openai).routing == ()


def test_neither_rolls_anything_out() -> None:
    plain, routed = (parse(QUICKSTART, serving={"openAI": openai}) for openai in ({}, BOTH))
    assert asks_for(routed.spec) == asks_for(plain.spec)


@pytest.mark.parametrize("path", ["/", "llama", "/llama/", "//a", "/a//b", "/a b"])
def test_a_path_is_a_prefix_without_an_end(path: str) -> None:
    with pytest.raises(ValidationError):
        parse(QUICKSTART, serving={"openAI": {"route": {**PARENTS, "path": path}}})


def live(openai: dict[str, Any]) -> list[Object]:
    return [applied(each) for each in desired(openai).routing]


STEPS: list[tuple[str, dict[str, Any], list[Object], list[str]]] = [
    ("nobody asks for one", {}, [], []),
    ("asked for: the pool first, which the route refers to", BOTH, [], ["+InferencePool", "+HTTPRoute"]),
    ("as it should be", BOTH, live(BOTH), []),
    ("another path", {"route": {**PARENTS, "path": "/a"}}, live(ROUTE), ["~HTTPRoute"]),
    ("no pool any more: the route leaves it first", ROUTE, live(BOTH), ["~HTTPRoute", "-InferencePool"]),
    ("asked for no more", {}, live(BOTH), ["-HTTPRoute", "-InferencePool"]),
    ("the endpoint is off", {**ROUTE, "enabled": False}, live(ROUTE), ["-HTTPRoute"]),
]


@pytest.mark.parametrize(("reason", "asked", "there", "wanted"), STEPS, ids=[row[0] for row in STEPS])
def test_what_is_asked_for_is_there(
    reason: str, asked: dict[str, Any], there: list[Object], wanted: list[str]
) -> None:
    actions = routing(Decision(desired=desired(asked)), observed_of(*there))
    assert [World.describe(action) for action in actions] == wanted, reason


def test_of_a_spec_that_is_refused_nothing_changes() -> None:
    refusal = Refusal(SpecReason.CACHE_NOT_SHAREABLE, "write maxReplicas: 1")
    assert routing(Decision(refusal=refusal, desired=desired(ROUTE)), observed_of(*live(BOTH))) == []


def test_a_right_that_is_missing_matters_to_who_asks_alone() -> None:
    why = Forbidden("me", "list", "httproutes", "gateway.networking.k8s.io", None)
    observed = Observed(unread={"HTTPRoute": why})
    for asked, missing in ((ROUTE, [why]), ({}, [])):
        decision = Decision(desired=desired(asked))
        assert missing_rights(decision, observed) == missing
        assert routing(decision, observed) == []
