"""How Flux (by kstatus) and Argo CD (by the health check in examples/) see a service in each of its states."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from support.services import QUICKSTART, parse
from support.world import BAD, NOW, World, bring_up
from tandem.api import GROUP, KIND
from tandem.api.conditions import ConditionType, SpecReason
from tandem.conditions.finding import Finding
from tandem.conditions.ready import status
from tandem.conditions.situation import Situation
from tandem.conditions.unseen import failed_status, stalled_status
from tandem.errors import Refused, Transient
from tandem.rollout.decide import decide
from tandem.rollout.observed import Observed
from tandem.settings import load_settings

from .conftest import Namespace

pytestmark = pytest.mark.nightly

ARGO_CD = Path(__file__).parents[2] / "examples/gitops/argocd/argocd-cm.yaml"
MUCH_LATER = "2026-01-02T00:00:00Z"
Status = dict[str, Any]


def shown(world: World, now: str = NOW, **changes: Any) -> Status:
    """The status of the quickstart as `world` is."""
    service, observed = parse(QUICKSTART, **changes), world.observed()
    return status(Situation(service, decide(service, world.settings, observed), observed, now))


def never_seen() -> Status:
    return {"observedGeneration": -1}


def edited_since() -> Status:
    return {**answers(), "observedGeneration": 2}


def checked() -> Status:
    world = World(load_settings())
    world.step(parse(QUICKSTART))
    return shown(world)


def models_do_not_fit() -> Status:
    world, service = World(load_settings()), parse(QUICKSTART)
    world.step(service)
    world.finish_preflight(BAD)
    return shown(world)


def refused() -> Status:
    return shown(World(load_settings()), runtime__profile="none")


def refused_by_the_api_server() -> Status:
    service, world = parse(QUICKSTART), World(load_settings())
    decision = decide(service, world.settings, world.observed())
    return status(Situation(service, decision, world.observed(), NOW, refused=Refused(403, "quota exceeded")))


def starting(now: str = NOW) -> Status:
    world = World(load_settings())
    bring_up(world, parse(QUICKSTART))
    world.run_servers(1, ready=False)
    return shown(world, now)


def overdue() -> Status:
    return starting(MUCH_LATER)


def answers() -> Status:
    world = World(load_settings())
    bring_up(world, parse(QUICKSTART))
    return shown(world)


def scaled_to_zero() -> Status:
    world, service = World(load_settings()), parse(QUICKSTART, replicas=0)
    bring_up(world, service)
    return shown(world, replicas=0)


def rights_missing() -> Status:
    missing = Finding(ConditionType.RIGHTS_GRANTED, "False", SpecReason.ACCEPTED, "list pods")
    return stalled_status(parse(QUICKSTART), Observed(), [missing], NOW)


def not_understood() -> Status:
    service, world = parse(QUICKSTART), World(load_settings())
    observed = replace(world.observed(), not_understood="spec.runtime.mode: Fast")
    return status(Situation(service, decide(service, world.settings, observed), observed, NOW))


def not_answered() -> Status:
    return failed_status(parse(QUICKSTART), Transient("503: not now"), NOW)


def defect() -> Status:
    return failed_status(parse(QUICKSTART), KeyError("x"), NOW)


STATES: list[tuple[Callable[[], Status], str, str, str]] = [
    # state, kstatus, Argo CD, the message that Argo CD shows begins with
    (never_seen, "InProgress", "Progressing", "the operator has not acted on this spec yet"),
    (edited_since, "InProgress", "Progressing", "the operator has not acted on this spec yet"),
    (checked, "InProgress", "Progressing", "PreflightRunning: "),
    (models_do_not_fit, "Failed", "Degraded", "TokenizersDiffer: token 7 is a here and b there"),
    (refused, "Failed", "Degraded", "UnknownProfile: "),
    (refused_by_the_api_server, "Failed", "Degraded", "ApplyRefused: quota exceeded"),
    (starting, "InProgress", "Progressing", "RollingOut: 0 of 1 servers of this revision answer"),
    (overdue, "Failed", "Degraded", "ProgressDeadlineExceeded: "),
    (answers, "Current", "Healthy", "1 of 1 servers answer"),
    (scaled_to_zero, "Current", "Suspended", "spec.replicas is 0"),
    (rights_missing, "Failed", "Degraded", "Accepted: list pods"),
    (not_understood, "Failed", "Degraded", "SpecNotUnderstood: spec.runtime.mode: Fast: upgrade the operator"),
    (not_answered, "InProgress", "Progressing", "ReconcileFailed: "),
    (defect, "Failed", "Degraded", "ReconcileFailed: "),
]


Judge = Callable[[str, Status], dict[str, str]]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Asks kstatus, and the health check of a kind in Argo CD's Lua."""
    program = binaries.ensure(["gitops-health"], print)["gitops-health"]
    health = tmp_path_factory.mktemp("argocd") / "health.lua"
    checks = yaml.safe_load(ARGO_CD.read_text(encoding="utf-8"))["data"]

    def ask(kind: str, of: Status) -> dict[str, str]:
        health.write_text(checks[f"resource.customizations.health.{kind}"], encoding="utf-8")
        manifest = parse(QUICKSTART).model_dump(by_alias=True, include={"metadata"})
        given = json.dumps({"apiVersion": "serving.tandem.dev/v1alpha1", "kind": "X", **manifest, "status": of})
        done = subprocess.run([program, health], input=given, capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found

    return ask


@pytest.mark.parametrize(("state", "kstatus", "argo", "message"), STATES, ids=[row[0].__name__ for row in STATES])
def test_health(judge: Judge, state: Callable[[], Status], kstatus: str, argo: str, message: str) -> None:
    found = judge(f"{GROUP}_{KIND}", state())
    assert (found["kstatus"], found["argo"]) == (kstatus, argo)
    assert found["message"].startswith(message)


@pytest.mark.parametrize(
    ("sync", "health", "argo", "reason"),
    [
        (None, None, "Progressing", "not looked at yet"),
        ("Unknown", "Healthy", "Progressing", "its repository, or a kind in it, is not there: it has no resources"),
        ("OutOfSync", "Healthy", "Progressing", "another commit is to be applied"),
        ("OutOfSync", "Missing", "Missing", "nothing is applied"),
        ("Synced", "Progressing", "Progressing", "a service downloads its models"),
        ("Synced", "Degraded", "Degraded", "a service is refused"),
        ("Synced", "Suspended", "Suspended", "a service has no replicas"),
        ("Synced", "Healthy", "Healthy", "the next wave may begin"),
    ],
)
def test_health_of_an_application(judge: Judge, sync: str | None, health: str | None, argo: str, reason: str) -> None:
    status = {"sync": {"status": sync}, "health": {"status": health}} if sync else {}
    assert judge("argoproj.io_Application", status)["argo"] == argo, reason


def test_what_the_operator_has_not_seen_is_not_current(namespace: Namespace) -> None:
    """The API server writes it: kstatus takes an object without a status for current."""
    namespace.apply()
    assert namespace.get("sis", "svc")["status"] == {"observedGeneration": -1}
